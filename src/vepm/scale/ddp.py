"""DDP: one model trained by several processes as if by one that holds all their batches."""

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from vepm.nn import VEPM
from vepm.nn.convolution import CommunityNorm
from vepm.objective import Terms
from vepm.scale.processes import ProcessGroup

Loss = Callable[..., Terms]


class DataParallel:
    """Steps down a loss whose batch is divided over the processes.

    A step updates some of the parameters, and its loss calls the model several times;
    DistributedDataParallel supports neither. So the loss itself is wrapped as a module, once for
    each set of parameters that are updated together, with the others frozen.

    Args:
        model: The model; its norms are made to use the statistics of all processes.
        group: The processes.
    """

    def __init__(self, model: VEPM, group: ProcessGroup) -> None:
        self.model, self.group = model, group
        self._wrapped: dict[frozenset[Tensor], DistributedDataParallel] = {}
        sync_norms(model, group)

    def descend(self, optimizers: Sequence[Optimizer], loss: Loss, *inputs: Any) -> Terms:
        """Step down the sum of all processes' losses; returns the terms of this process."""
        moving = [p for o in optimizers for g in o.param_groups for p in g["params"]]
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        terms = self.differentiate(moving, loss, *inputs)
        for optimizer in optimizers:
            optimizer.step()
        return terms

    def differentiate(self, moving: list[nn.Parameter], loss: Loss, *inputs: Any) -> Terms:
        """Write the gradients of the sum of all losses to the parameters that move."""
        with self._only(moving):
            key = frozenset(moving)
            if key not in self._wrapped:
                self._wrapped[key] = DistributedDataParallel(_AsModule(self.model))
            terms: Terms = self._wrapped[key](loss, *inputs)
            with warnings.catch_warnings():
                # Strides of dimensions of size one do not matter.
                warnings.filterwarnings("ignore", message="Grad strides do not match")
                # DDP averages the gradients; the sum is wanted.
                (terms.loss * self.group.size).backward()
        return terms

    def close(self) -> None:
        """Release the wrappers: one that outlives the process group would hang."""
        self._wrapped.clear()
        gc.collect()

    @contextlib.contextmanager
    def _only(self, moving: list[nn.Parameter]) -> Iterator[None]:
        chosen = set(moving)
        for parameter in self.model.parameters():
            parameter.requires_grad_(parameter in chosen)
        try:
            yield
        finally:
            self.model.requires_grad_(True)


class _AsModule(nn.Module):
    def __init__(self, model: VEPM) -> None:
        super().__init__()
        self.model = model

    def forward(self, loss: Loss, *inputs: Any) -> Terms:
        return loss(self.model, *inputs)


def sync_norms(model: nn.Module, group: ProcessGroup) -> None:
    """Make every batch normalisation of a model use the statistics of all processes."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is CommunityNorm:
                setattr(module, name, SyncNorm(child, group))


class SyncNorm(CommunityNorm):
    """:class:`CommunityNorm` over the nodes of all processes, on CPUs and GPUs alike.

    Args:
        norm: The norm to replace; its parameters are shared.
        group: The processes.
    """

    def __init__(self, norm: CommunityNorm, group: ProcessGroup) -> None:
        nn.Module.__init__(self)
        self.norm, self.group = norm.norm, group

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [n, K, D] by the mean and variance of all processes' nodes."""
        if not self.training:
            return super().forward(x)
        flat = x.flatten(1)
        count = float(self.group.sum(flat.new_tensor([flat.size(0)], dtype=torch.double)))
        if count < 2:
            return self._use_running_statistics(x)
        mean = self._sum(flat.sum(0)) / count
        centred = flat - mean
        variance = self._sum(centred.square().sum(0)) / count
        self._update_statistics(mean.detach(), variance.detach() * (count / (count - 1)))
        scale = self.norm.weight * torch.rsqrt(variance + self.norm.eps)
        return (centred * scale + self.norm.bias).view_as(x)

    def _use_running_statistics(self, x: Tensor) -> Tensor:
        self.eval()
        y = super().forward(x)
        self.train()
        return y

    def _sum(self, values: Tensor) -> Tensor:
        return _SumOverProcesses.apply(values, self.group)  # type: ignore[no-untyped-call]

    def _update_statistics(self, mean: Tensor, variance: Tensor) -> None:
        norm = self.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.num_batches_tracked is not None
        assert norm.momentum is not None
        norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance, norm.momentum)


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return group.sum(values.clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        # The sum enters the losses of all processes.
        return ctx.group.sum(grad.clone()), None
