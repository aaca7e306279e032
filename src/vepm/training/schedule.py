"""What moves when, how far, and by which random numbers."""

import hashlib
import math

import torch
from torch import Tensor

from vepm.training.config import TrainingConfig


def scheme_steps(scheme: str, interval: int, step: int) -> tuple[str, ...]:
    """What moves in a step of finetuning: the predictor, the encoder, or both at once.

    Example:
        >>> [scheme_steps("alternating", 2, step) for step in range(2)]
        [('predictor',), ('predictor', 'encoder')]
    """
    if scheme == "predictor":
        return ("predictor",)
    if scheme in ("joint", "scratch"):
        return ("both",)
    return ("predictor", "encoder") if (step + 1) % interval == 0 else ("predictor",)


def schedule_factor(schedule: str, epoch: int, epochs: int) -> float:
    """Learning rate of an epoch relative to the first.

    Example:
        >>> [schedule_factor("halving", epoch, 300) for epoch in (0, 49, 50, 100)]
        [1.0, 1.0, 0.5, 0.25]
    """
    if schedule == "cosine":
        return (1 + math.cos(math.pi * epoch / epochs)) / 2
    return float(0.5 ** (epoch // 50)) if schedule == "halving" else 1.0


def consistency_weight(config: TrainingConfig, epoch: int) -> float:
    """Weight of the disagreement of noisy passes in an epoch of finetuning.

    Before labels have taught anything, the easiest way to agree is on one class for all.

    Example:
        >>> config = TrainingConfig(consistency_weight=2.0, consistency_warmup=4)
        >>> [consistency_weight(config, epoch) for epoch in (0, 2, 4, 99)]
        [0.0, 1.0, 2.0, 2.0]
    """
    warm = epoch >= config.consistency_warmup
    return config.consistency_weight * (1.0 if warm else epoch / config.consistency_warmup)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give an optimizer its learning rate."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            # A recorded step reads it where it is.
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def descend(loss: Tensor, *optimizers: torch.optim.Optimizer) -> None:
    """Step down the gradient of a loss with the parameters of the optimizers, and no others."""
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    parameters = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    # Only what is to move needs a gradient: the rest of the backward pass is left out.
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    for optimizer in optimizers:
        optimizer.step()


def seed_of(*purpose: str | int) -> int:
    """A seed that belongs to a purpose, unrelated to any other's."""
    text = "/".join(map(str, purpose))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def seed_draws(*purpose: str | int) -> None:
    """Draw from here on what belongs to a purpose, whatever was drawn before."""
    torch.manual_seed(seed_of(*purpose))
