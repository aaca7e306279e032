"""Batch normalisation over the nodes of all processes, or over those that are not padding."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vepm.kernels.patterns import apply
from vepm.nn.convolution import CommunityNorm
from vepm.scale.ddp import ProcessGroup


def replace_norms(model: nn.Module, substitute: Callable[[CommunityNorm], CommunityNorm]) -> None:
    """Replace every batch normalisation layer of a model by its substitute."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is CommunityNorm:
                setattr(module, name, substitute(child))


class _OwnStatistics(CommunityNorm):
    """A norm that shares the weights of another and computes means in its own way."""

    def __init__(self, norm: CommunityNorm) -> None:
        nn.Module.__init__(self)
        self.norm = norm.norm

    def normalise(
        self, x: Tensor, mean_of: Callable[[Tensor], Tensor], count: Tensor | float
    ) -> Tensor:
        """Normalise [N, K, D], given a function for means over nodes [N, H] and their number."""
        norm, flat = self.norm, x.flatten(1)
        mean = mean_of(flat)
        centred = flat - mean
        variance = mean_of(centred.square())
        running_mean, running_var, times = norm.buffers()
        times.add_(1)
        with torch.no_grad():
            momentum = norm.momentum or 0.0
            running_mean.copy_(running_mean.lerp(mean, momentum))
            running_var.copy_(running_var.lerp(variance * count / (count - 1), momentum))
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        return torch.addcmul(norm.bias, centred, scale).view_as(x)


class SyncNorm(_OwnStatistics):
    """:class:`CommunityNorm` over the nodes of all processes, on CPUs and GPUs alike."""

    def __init__(self, norm: CommunityNorm, group: ProcessGroup) -> None:
        super().__init__(norm)
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [n, K, D] by the mean and variance of all processes' nodes."""
        if not self.training:
            return super().forward(x)
        count = float(self.group.sum(x.new_tensor([x.size(0)], dtype=torch.double)))
        if count < 2:
            return super().forward(x)
        return self.normalise(x, lambda own: apply(_Sum, own.sum(0), self.group) / count, count)


class _Sum(torch.autograd.Function):
    """The sum over all processes, which enters the losses of all of them."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return group.sum(values.clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.group.sum(grad.clone()), None


class PaddedNorm(_OwnStatistics):
    """:class:`CommunityNorm` under ``vmap``, whose statistics leave padding out."""

    mask: Tensor | None = None  # true for nodes that are not padding [N]; None without padding

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [N, K, D]; padding goes through the same map."""
        if not self.training or self.mask is None:
            return super().forward(x)
        count = self.mask.sum()
        share = (self.mask.to(x.dtype) / count)[None]
        return self.normalise(x, lambda values: (share @ values).squeeze(0), count)
