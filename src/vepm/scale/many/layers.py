"""Norms and linear maps of many runs, which replace those of a model under ``vmap``.

The gradient of a weight is a sum over all rows. One such product per run uses a small part of a
GPU; cut into chunks of rows, there is enough parallel work.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vepm.kernels.features import Features
from vepm.kernels.patterns import apply
from vepm.nn.convolution import CommunityLinear, CommunityNorm
from vepm.scale.ddp import replace_layers
from vepm.scale.many.edges import Dims, across, apart, beside, runs_first

FEWEST_ROWS = 512
"""The least number of rows in a chunk."""
MOST_VALUES = 2**22
"""The most values in the sums of all chunks."""


class PaddingMask:
    """Tells the norms of a model which nodes of the present batch are padding."""

    nodes: Tensor | None = None
    """True for nodes that are not padding [N]; None without padding."""


def share_layers(model: nn.Module, padding: PaddingMask) -> None:
    """Make the linear maps of a model work for all runs at once, and its norms ignore padding."""
    maps = {CommunityLinear: SharedCommunityLinear, nn.Linear: SharedLinear}
    replace_layers(model, {CommunityNorm: lambda norm: PaddedNorm(norm, padding), **maps})


class PaddedNorm(CommunityNorm):
    """A norm that shares the weights of another, and whose statistics leave padding out."""

    def __init__(self, norm: CommunityNorm, padding: PaddingMask) -> None:
        nn.Module.__init__(self)
        self.norm, self._padding = norm.norm, padding

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [N, K, D]; padding goes through the same map."""
        mask, norm = self._padding.nodes, self.norm
        if not self.training or mask is None:
            return super().forward(x)
        running_mean, running_var, times = norm.buffers()
        times.add_(1)
        weights = (norm.weight, norm.bias, running_mean, running_var)
        return across(self._rule, x.flatten(1), mask, *weights).view_as(x)

    def _rule(
        self, runs: int, dims: Dims, x: Tensor, mask: Tensor, *weights: Tensor
    ) -> tuple[Tensor, int]:
        x, mask = (t.movedim(d or 0, 0) for t, d in zip((x, mask), dims, strict=False))
        count = mask.sum(1)[:, None, None]
        share = (mask[..., None].to(x.dtype) / count).transpose(1, 2)
        weight, bias, running_mean, running_var = (w[:, None] for w in weights)
        mean = share @ x
        centred = x - mean
        variance = share @ centred.square()
        with torch.no_grad():
            momentum = self.norm.momentum or 0.0
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(variance * count / (count - 1), momentum)
        scale = weight * (variance + self.norm.eps).rsqrt()
        return torch.addcmul(bias, centred, scale), 0


class SharedCommunityLinear(CommunityLinear):
    """The K maps of every run, which share the weights of others."""

    def __init__(self, linear: CommunityLinear) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias = linear.weight, linear.bias

    def multiply(self, x: Features, weight: Tensor) -> Tensor:
        """One map [N, in] to [N, out] of every run."""
        return multiply(x, weight) if isinstance(x, Tensor) else x @ weight

    def multiply_each(self, x: Tensor) -> Tensor:
        """All maps [N, K, in] to [N, K, out] of every run."""
        heads = x.size(1)

        def rule(runs: int, dims: Dims, x: Tensor, weight: Tensor) -> tuple[Tensor, int]:
            x, weight = runs_first(x, dims[0], runs), runs_first(weight, dims[1], runs)
            y = product(x.transpose(1, 2).flatten(0, 1), weight.flatten(0, 1))
            return y.unflatten(0, (runs, heads)).transpose(1, 2), 0

        return across(rule, x, self.weight)


class SharedLinear(nn.Linear):
    """The linear map of every run, which shares the weights of another."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, in] to [N, out]."""
        return multiply(x, self.weight.t()) + self.bias


def multiply(x: Tensor, weight: Tensor) -> Tensor:
    """Rows [N, in] times weights [in, out], under ``vmap``."""

    def rule(runs: int, dims: Dims, x: Tensor, weight: Tensor) -> tuple[Tensor, int]:
        if dims[0] is None:
            return apart(x @ beside(weight, dims[1], 1, runs), 1, runs)
        return product(runs_first(x, dims[0], runs), runs_first(weight, dims[1], runs)), 0

    return across(rule, x, weight)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Rows [B, N, in] times weights [B, in, out]."""
    return apply(_Product, x, weight)


def product_over_rows(x: Tensor, y: Tensor, chunks: int) -> Tensor:
    """``x.transpose(1, 2) @ y`` of [B, N, in] and [B, N, out], summed over chunks of the rows."""
    if chunks < 2:
        return x.transpose(1, 2) @ y
    whole = x.size(1) // chunks * chunks
    of_x, of_y = (t[:, :whole].unflatten(1, (chunks, -1)).flatten(0, 1) for t in (x, y))
    sums = (of_x.transpose(1, 2) @ of_y).unflatten(0, (-1, chunks)).sum(1)
    if whole == x.size(1):
        return sums
    return sums.baddbmm_(x[:, whole:].transpose(1, 2), y[:, whole:])


def chunk_count(x: Tensor, y: Tensor) -> int:
    """Number of chunks to cut the rows of such a product into."""
    values = x.size(0) * x.size(2) * y.size(2)
    most = min(x.size(1) // FEWEST_ROWS, MOST_VALUES // max(values, 1))
    return most if x.is_cuda else 1


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x, of_weight = ctx.needs_input_grad
        return (
            grad @ weight.transpose(1, 2) if of_x else None,
            product_over_rows(x, grad, chunk_count(x, grad)) if of_weight else None,
        )
