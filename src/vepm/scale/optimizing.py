"""Steps of Adam that can be captured as CUDA graphs."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def capturable_adam(
    parameters: Sequence[Tensor], weight_decay: float = 0.0, undecayed: Sequence[Tensor] = ()
) -> torch.optim.Adam:
    """Adam whose step can be captured if its parameters are on a GPU.

    Args:
        parameters: What to optimise.
        weight_decay: Weight decay.
        undecayed: Those of the parameters that are not decayed.
    """
    gpu = parameters[0].is_cuda
    rate = parameters[0].new_tensor(0.0) if gpu else 0.0
    free = {id(parameter) for parameter in undecayed}
    groups: list[dict[str, Any]] = [{"params": [p for p in parameters if id(p) not in free]}]
    if undecayed:
        groups.append({"params": list(undecayed), "weight_decay": 0.0})
    return torch.optim.Adam(groups, lr=rate, weight_decay=weight_decay, capturable=gpu)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of an optimizer."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            # In place: a captured step reads it from there.
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def descend(loss: Tensor, *optimizers: torch.optim.Optimizer) -> None:
    """Step down the gradient of a loss with the parameters of the optimizers, and no others."""
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    parameters = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    # Gradients of the other parameters are not computed at all.
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    for optimizer in optimizers:
        optimizer.step()
