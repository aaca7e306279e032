"""One model trained by several processes as if by one that holds all their batches."""

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
from vepm.training.losses import Terms
from vepm.training.ranks import Team

Loss = Callable[..., Terms]


class Replicas:
    """Gradients of a loss whose batch is shared out over the processes.

    A step moves some parameters and leaves the others, and its loss is made of several calls of
    the model; DistributedDataParallel knows neither. So it wraps the loss as a module of its own,
    once for each set of parameters that move together, the others frozen meanwhile.

    Args:
        model: The model; its norms are made to measure the batches of all processes together.
        team: The processes.
    """

    def __init__(self, model: VEPM, team: Team) -> None:
        self.model, self.team = model, team
        self._wrapped: dict[frozenset[Tensor], DistributedDataParallel] = {}
        join_norms(model, team)

    def descend(self, optimizers: Sequence[Optimizer], loss: Loss, *inputs: Any) -> Terms:
        """Step down the loss of all shares together; gives this process's share of the terms."""
        moving = [p for o in optimizers for group in o.param_groups for p in group["params"]]
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        terms = self.differentiate(moving, loss, *inputs)
        for optimizer in optimizers:
            optimizer.step()
        return terms

    def differentiate(self, moving: list[nn.Parameter], loss: Loss, *inputs: Any) -> Terms:
        """Leave the gradients of all shares together in the moving parameters."""
        with self._only(moving):
            key = frozenset(moving)
            if key not in self._wrapped:
                self._wrapped[key] = DistributedDataParallel(_AsModule(self.model))
            terms: Terms = self._wrapped[key](loss, *inputs)
            with warnings.catch_warnings():
                # Dimensions of size one may be strided as they like.
                warnings.filterwarnings("ignore", message="Grad strides do not match")
                # The mean over the processes of what is so many times too large is the sum.
                (terms.loss * self.team.size).backward()
        return terms

    def close(self) -> None:
        """Let go of the other processes; whoever still holds on when they part would hang."""
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


def join_norms(model: nn.Module, team: Team) -> None:
    """Make every batch normalisation of a model measure the batches of all processes together."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is CommunityNorm:
                setattr(module, name, JoinedNorm(child, team))


class JoinedNorm(CommunityNorm):
    """:class:`CommunityNorm` over the nodes of all processes, on CPUs and GPUs alike.

    Args:
        norm: The norm to take the place of; it keeps its parameters.
        team: The processes.
    """

    def __init__(self, norm: CommunityNorm, team: Team) -> None:
        nn.Module.__init__(self)
        self.norm, self.team = norm.norm, team

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [n, K, D] by the mean and spread of all processes' nodes."""
        if not self.training:
            return super().forward(x)
        flat = x.flatten(1)
        count = float(self.team.sum(flat.new_tensor([flat.size(0)], dtype=torch.double)))
        if count < 2:
            return self._by_running_values(x)
        mean = self._sum(flat.sum(0)) / count
        centred = flat - mean
        variance = self._sum(centred.square().sum(0)) / count
        self._remember(mean.detach(), variance.detach() * (count / (count - 1)))
        scale = self.norm.weight * torch.rsqrt(variance + self.norm.eps)
        return (centred * scale + self.norm.bias).view_as(x)

    def _by_running_values(self, x: Tensor) -> Tensor:
        self.eval()
        y = super().forward(x)
        self.train()
        return y

    def _sum(self, values: Tensor) -> Tensor:
        return _SumOverAll.apply(values, self.team)  # type: ignore[no-untyped-call]

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        norm = self.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.num_batches_tracked is not None
        assert norm.momentum is not None
        norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance, norm.momentum)


class _SumOverAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, team: Team) -> Tensor:
        ctx.team = team
        return team.sum(values.clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        # What one process contributed is in the losses of all.
        return ctx.team.sum(grad.clone()), None
