"""Edges that are shared out and summed in one pass, their shares never written down.

Shares [E, K] follow from the affiliations at the two ends of an edge, and reading those again
is often cheaper than writing the shares, keeping them for the gradient and reading them back.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vepm.kernels.aggregation import Adjacency, edge_shares


@runtime_checkable
class FusingPattern(Protocol):
    """A pattern that shares edges out while it sums over them."""

    def fuses(self, heads: int, segment: int, channels: int) -> bool:
        """Whether it can at these sizes."""

    def share_sums(
        self,
        near: Tensor,
        far: Tensor,
        near_value: Tensor | None,
        far_value: Tensor | None,
        *,
        wanted: tuple[bool, bool],
        exponent: float | None = None,
    ) -> list[Tensor | None]:
        """Values summed by shares, and far ends summed by the gradient of their rates."""


class Shares(NamedTuple):
    r"""How edges are to be shared out: :math:`w_{ek} = \mathrm{softmax}_k \langle t_{jk}, s_{ik}
    \rangle` for edge :math:`e = (i, j)`, or proportional to a power of the products. Stands for
    [E, K] where message passing takes weights.
    """

    target: Tensor
    """Features [N, K, D] read where edges end."""
    source: Tensor
    """Features [N, K, D] read where edges begin."""
    edges: Adjacency
    exponent: float | None = None
    """Power of the products that shares are proportional to; None takes their softmax."""

    def tensor(self) -> Tensor:
        """The shares themselves [E, K]."""
        if self.exponent is None:
            return edge_shares(self.target, self.source, self.edges)
        return self.edges.posterior_ends(self.target, self.source, self.exponent)

    def aggregate(self, x: Tensor) -> Tensor:
        """What :func:`vepm.nn.aggregate` gives with these shares as weights."""
        kind = torch.promote_types(x.dtype, self.target.dtype)
        out: Tensor = _ShareSums.apply(  # type: ignore[no-untyped-call]
            x.to(kind).contiguous(), *self._ends(kind), self.edges, self.exponent
        )
        return out

    def sum_at_target(self) -> Tensor:
        """Sum of the shares of the edges that end in each node [N, K]."""
        ends = self._ends(self.target.dtype)
        total: Tensor = _ShareSums.apply(  # type: ignore[no-untyped-call]
            None, *ends, self.edges, self.exponent
        )
        return total.squeeze(-1)

    def _ends(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        return self.target.to(kind).contiguous(), self.source.to(kind).contiguous()

    def worth_fusing(self, sums: int, channels: int) -> bool:
        """Whether to sum ``sums`` times over the edges without writing the shares down.

        Counted per edge, forward and backward, in numbers moved: every fused sum reads the
        affiliations of one end three times. Shares that are kept do so once for all sums, but
        are themselves written and read, their gradients too, about ten times in each sum.
        """
        heads, segment = self.target.shape[1:]
        if self.edges.under_vmap or self.edges.weight is not None:
            return False
        pattern = self.edges.pattern(heads)
        if not isinstance(pattern, FusingPattern) or not pattern.fuses(heads, segment, channels):
            return False
        return 3 * segment * (sums - 1) <= 10 * sums


class _ShareSums(torch.autograd.Function):
    """``out[j, k] = sum over e into j of share[e, k] * x[i, k]``; no x counts as ones."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor | None,
        target: Tensor,
        source: Tensor,
        edges: Adjacency,
        exponent: float | None,
    ) -> Tensor:
        ctx.save_for_backward(x, target, source)
        ctx.edges, ctx.exponent = edges, exponent
        pattern = _fusing(edges, target, transposed=False)
        sums, _ = pattern.share_sums(
            target, source, None, x, wanted=(True, False), exponent=exponent
        )
        assert sums is not None
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients to x, target and source, with every share made again."""
        x, target, source = ctx.saved_tensors
        grad = grad.contiguous()
        _, grad_target = _fusing(ctx.edges, target, transposed=False).share_sums(
            target, source, grad, x, wanted=(False, True), exponent=ctx.exponent
        )
        grad_x, grad_source = _fusing(ctx.edges, target, transposed=True).share_sums(
            source, target, x, grad, wanted=(x is not None, True), exponent=ctx.exponent
        )
        return grad_x, grad_target, grad_source, None, None


def _fusing(edges: Adjacency, like: Tensor, transposed: bool) -> FusingPattern:
    pattern = edges.pattern(like.size(1), transposed)
    assert isinstance(pattern, FusingPattern)
    return pattern
