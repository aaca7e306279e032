"""Edges that are shared out and summed in one pass, their shares never written down.

Shares [E, K] follow from the affiliations at the two ends of an edge, and reading those again
is often cheaper than writing the shares, keeping them for the gradient and reading them back.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from vepm.nn.aggregation import Adjacency, edge_shares


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
        groups: int,
        wanted: tuple[bool, bool],
    ) -> list[Tensor | None]:
        """Values summed by shares, and far ends summed by the gradient of their rates."""


class Shares(NamedTuple):
    r"""How edges are to be shared out: :math:`w_{ek} = \mathrm{softmax}_k \langle t_{jk}, s_{ik}
    \rangle` for edge :math:`e = (i, j)`. Stands for [E, K] where message passing takes weights.
    """

    target: Tensor
    """Features [N, K, D] read where edges end."""
    source: Tensor
    """Features [N, K, D] read where edges begin."""
    edges: Adjacency

    def tensor(self) -> Tensor:
        """The shares themselves [E, K]."""
        return edge_shares(self.target, self.source, self.edges)

    def aggregate(self, x: Tensor) -> Tensor:
        """What :func:`vepm.nn.aggregate` gives with these shares as weights."""
        kind = torch.promote_types(x.dtype, self.target.dtype)
        out: Tensor = _ShareSums.apply(  # type: ignore[no-untyped-call]
            x.to(kind).contiguous(), *self._ends(kind), self.edges, 1
        )
        return out

    def sum_at_target(self) -> Tensor:
        """Sum of the shares of the edges that end in each node [N, K]."""
        ends = self._ends(self.target.dtype)
        total: Tensor = _ShareSums.apply(None, *ends, self.edges, 1)  # type: ignore[no-untyped-call]
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
        pattern = self.edges.pattern(heads)
        if not isinstance(pattern, FusingPattern) or not pattern.fuses(heads, segment, channels):
            return False
        return 3 * segment * (sums - 1) <= 10 * sums


class _ShareSums(torch.autograd.Function):
    """``out[j, k] = sum over e into j of share[e, k] * x[i, k]``; no x counts as ones."""

    @staticmethod
    def forward(
        x: Tensor | None, target: Tensor, source: Tensor, edges: Adjacency, groups: int
    ) -> Tensor:
        pattern = _fusing(edges, target, transposed=False)
        sums, _ = pattern.share_sums(target, source, None, x, groups=groups, wanted=(True, False))
        assert sums is not None
        return sums

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, target, source, ctx.edges, ctx.groups = inputs
        ctx.save_for_backward(x, target, source)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients = _ShareSumsGradient.apply(  # type: ignore[no-untyped-call]
            grad.contiguous(), *ctx.saved_tensors, ctx.edges, ctx.groups
        )
        grad_x = gradients[2] if ctx.needs_input_grad[0] else None
        return grad_x, gradients[0], gradients[1], None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        """Several runs are groups of communities beside each other."""
        size = info.batch_size
        folded = [_fold(t, dim, size) for t, dim in zip(inputs[:3], in_dims, strict=False)]
        out = _ShareSums.apply(*folded, inputs[3], size * inputs[4])  # type: ignore[no-untyped-call]
        return out.unflatten(1, (size, -1)), 1


class _ShareSumsGradient(torch.autograd.Function):
    """Gradients to target, source and x, with every share made again."""

    @staticmethod
    def forward(
        grad: Tensor,
        x: Tensor | None,
        target: Tensor,
        source: Tensor,
        edges: Adjacency,
        groups: int,
    ) -> tuple[Tensor, ...]:
        _, grad_target = _fusing(edges, target, transposed=False).share_sums(
            target, source, grad, x, groups=groups, wanted=(False, True)
        )
        grad_x, grad_source = _fusing(edges, target, transposed=True).share_sums(
            source, target, x, grad, groups=groups, wanted=(x is not None, True)
        )
        assert grad_target is not None
        assert grad_source is not None
        return (grad_target, grad_source) if grad_x is None else (grad_target, grad_source, grad_x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing to keep: there is no second derivative."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *inputs: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Several runs are groups of communities beside each other."""
        size = info.batch_size
        folded = [_fold(t, dim, size) for t, dim in zip(inputs[:4], in_dims, strict=False)]
        outs = _ShareSumsGradient.apply(  # type: ignore[no-untyped-call]
            *folded, inputs[4], size * inputs[5]
        )
        return tuple(out.unflatten(1, (size, -1)) for out in outs), (1,) * len(outs)


def _fusing(edges: Adjacency, like: Tensor, transposed: bool) -> FusingPattern:
    pattern = edges.pattern(like.size(1), transposed)
    assert isinstance(pattern, FusingPattern)
    return pattern


def _fold(values: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """Runs beside each other, [N, runs * K, D]."""
    if values is None:
        return None
    runs = values[:, None].expand(-1, size, -1, -1) if dim is None else values.movedim(dim, 1)
    return runs.flatten(1, 2).contiguous()
