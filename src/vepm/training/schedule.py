"""Which parameters step when, and how far."""

import math

from vepm.training.config import TrainingConfig


def scheme_steps(scheme: str, interval: int, step: int) -> tuple[str, ...]:
    """Which parameters a step of finetuning updates: the predictor's, the encoder's or both.

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

    It grows slowly: before the labels have been learned, the easiest way to agree is to predict
    one class for all.

    Example:
        >>> config = TrainingConfig(consistency_weight=2.0, consistency_warmup=4)
        >>> [consistency_weight(config, epoch) for epoch in (0, 2, 4, 99)]
        [0.0, 1.0, 2.0, 2.0]
    """
    warm = epoch >= config.consistency_warmup
    return config.consistency_weight * (1.0 if warm else epoch / config.consistency_warmup)
