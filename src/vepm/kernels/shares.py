"""Rates at which communities link nodes, and edges that are shared out by them in one pass.

Shares [E, K] follow from the affiliations at the two ends of an edge, and reading those again
is often cheaper than writing the shares, keeping them for the gradient and reading them back.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vepm.kernels.aggregation import Adjacency, edge_shares, posterior_shares
from vepm.kernels.patterns import apply

SMALLEST_SHARE = 0.003
"""A community through which a smaller share of the expected links runs is empty."""


def couple(z: Tensor, activation: Tensor) -> Tensor:
    r"""One end of every pair: :math:`y_i = \Lambda z_i`, so that :math:`r_{ij} = y_i^\top z_j`.

    The activation has a value of each community [C], or one of each pair of them [C, C].
    """
    return z * activation if activation.dim() == 1 else z @ activation


def pair_rates(a: Tensor, b: Tensor, activation: Tensor) -> Tensor:
    r"""Rate :math:`a_i^\top \Lambda b_i` of each row of two sets of affiliations [N, C]."""
    if activation.dim() == 1:
        return (a.square() if a is b else a * b) @ activation
    return (couple(a, activation) * b).sum(-1)


def link_shares(z: Tensor, activation: Tensor) -> Tensor:
    r"""Share of the expected links of a graph that run through each community [C].

    .. math:: \frac{\gamma_c s_c^2}{\sum_d \gamma_d s_d^2}, \quad s = \sum_i z_i

    Example:
        >>> link_shares(torch.tensor([[1.0, 2.0], [1.0, 0.0]]), torch.tensor([3.0, 1.0]))
        tensor([0.7500, 0.2500])
    """
    total = z.sum(0)
    between = activation if activation.dim() == 1 else activation + activation.mT
    links = total * couple(total, between)
    # A share that grew because others shrink would reward one community for taking all links.
    return links / links.sum().detach()


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
        return posterior_shares(self.edges.dot_ends(self.target, self.source), self.exponent)

    def aggregate(self, x: Tensor) -> Tensor:
        """What :func:`vepm.nn.aggregate` gives with these shares as weights."""
        kind = torch.promote_types(x.dtype, self.target.dtype)
        return self._sum(x.to(kind).contiguous(), kind)

    def sum_at_target(self) -> Tensor:
        """Sum of the shares of the edges that end in each node [N, K]."""
        return self._sum(None, self.target.dtype).squeeze(-1)

    def _sum(self, x: Tensor | None, kind: torch.dtype) -> Tensor:
        ends = self.target.to(kind).contiguous(), self.source.to(kind).contiguous()
        return apply(_ShareSums, x, *ends, self.edges, self.exponent)

    def worth_fusing(self, sums: int, channels: int) -> bool:
        """Whether to sum ``sums`` times over the edges without writing the shares down.

        Counted per edge, forward and backward, in numbers moved: every fused sum reads the
        affiliations of one end three times. Shares that are kept do so once for all sums, but
        are themselves written and read, their gradients too, about ten times in each sum.
        """
        heads, segment = self.target.shape[1:]
        if self.edges.under_vmap or self.edges.weight is not None:
            return False
        # Only the kernels on GPUs share edges out while they sum over them.
        fuses = getattr(self.edges.pattern(heads), "fuses", None)
        if fuses is None or not fuses(heads, segment, channels):
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
        pattern: Any = edges.pattern(target.size(1))
        given = target, source, None, x
        return pattern.share_sums(*given, wanted=(True, False), exponent=exponent)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients to x, target and source, with every share made again."""
        x, target, source = ctx.saved_tensors
        heads, grad = target.size(1), grad.contiguous()
        _, grad_target = ctx.edges.pattern(heads).share_sums(
            target, source, grad, x, wanted=(False, True), exponent=ctx.exponent
        )
        grad_x, grad_source = ctx.edges.pattern(heads, True).share_sums(
            source, target, x, grad, wanted=(x is not None, True), exponent=ctx.exponent
        )
        return grad_x, grad_target, grad_source, None, None
