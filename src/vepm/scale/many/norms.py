"""Batch normalisation that leaves padding out."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vepm.nn.convolution import CommunityNorm
from vepm.scale.many.edges import Dims
from vepm.scale.many.vmap import across


class PaddingMask:
    """Tells the norms of a model which nodes of the present batch are padding."""

    nodes: Tensor | None = None
    """True for nodes that are not padding [N]; None without padding."""


def mask_norms(model: nn.Module, padding: PaddingMask) -> None:
    """Make every norm of a model leave padding out of its statistics."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, CommunityNorm):
                setattr(module, name, PaddedNorm(child, padding))


class PaddedNorm(CommunityNorm):
    """A norm whose statistics leave padding out.

    Args:
        norm: The norm to replace; weights are shared.
        padding: Which nodes are padding.
    """

    def __init__(self, norm: CommunityNorm, padding: PaddingMask) -> None:
        nn.Module.__init__(self)
        self.norm, self._padding = norm.norm, padding

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [N, K, D]; padding goes through the same map."""
        mask, norm = self._padding.nodes, self.norm
        if not self.training or mask is None:
            return super().forward(x)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.add_(1)
        weights = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        return across(self._rule, x.flatten(1), mask, *weights).view_as(x)

    def _rule(
        self, runs: int, dims: Dims, x: Tensor, mask: Tensor, *weights: Tensor
    ) -> tuple[Tensor, int]:
        x, mask = (t.movedim(d or 0, 0) for t, d in zip((x, mask), dims, strict=False))
        count = mask.sum(1)[:, None, None]
        share = mask[..., None].to(x.dtype) / count
        weight, bias, running_mean, running_var = (w[:, None] for w in weights)
        y, mean, variance = _MaskedNorm.apply(  # type: ignore[no-untyped-call]
            x, share, weight, bias, self.norm.eps
        )
        with torch.no_grad():
            momentum = self.norm.momentum or 0.0
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(variance * count / (count - 1), momentum)
        return y, 0


class _MaskedNorm(torch.autograd.Function):
    """Normalise [R, N, C] by means that weigh the nodes by their shares [R, N, 1]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, share: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        across_nodes = share.transpose(1, 2)
        mean = across_nodes @ x
        centred = x - mean
        variance = across_nodes @ centred.square()
        inverse = (variance + eps).rsqrt()
        normal = centred.mul_(inverse)
        ctx.save_for_backward(normal, share, weight, inverse)
        ctx.mark_non_differentiable(mean, variance)
        return torch.addcmul(bias, normal, weight), mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        normal, share, weight, inverse = ctx.saved_tensors
        grad_weight = (grad * normal).sum(1, keepdim=True)
        grad_bias = grad.sum(1, keepdim=True)
        through_statistics = share * torch.addcmul(grad_bias, normal, grad_weight)
        grad_x = (grad - through_statistics) * (inverse * weight)
        return grad_x, None, grad_weight, grad_bias, None
