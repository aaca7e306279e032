"""Numbers that are no longer finite: where they came up, and what to do about it."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from vepm.errors import DivergedError, InputError
from vepm.nn import VEPM
from vepm.training.losses import Terms
from vepm.training.prediction import seeded
from vepm.training.state import Course, TrainingState

LARGEST_WEIGHT = 1e30
"""More than a trained model holds, and near the end of single precision."""


def check_weights(state: TrainingState) -> None:
    """Refuse to go on, or to save, where a step of finite loss made weights that are not.

    Raises:
        DivergedError: if a weight is not finite.
    """
    sums = [weight.detach().sum() for weight in state.model.parameters()]
    if not math.isfinite(torch.stack(sums).sum()):
        raise diverged("a gradient is not finite", "the last step", state)


def diverged_term(steps: Sequence[Terms], course: Course) -> DivergedError:
    """What to raise when an epoch's terms are not all finite: it names the first that is not."""
    for step, terms in enumerate(steps):
        # The loss stands first, but a term it is made of says more about the cause.
        for name, value in reversed(list(terms._asdict().items())):
            if value is not None and not math.isfinite(value):
                return diverged(f"{name} is {float(value)}", f"step {step}", course)
    return diverged("the sum of a term overflows", "the steps", course)


def diverged(what: str, where: str, course: Course) -> DivergedError:
    """What to raise when a number has left all bounds."""
    return DivergedError(
        f"training diverged: {what} in {where} of epoch {course.epoch} of {course.phase}; "
        "lower the learning rate or check the features' scale"
    )


def require_usable(path: Path, model: VEPM, in_channels: int) -> None:
    """Refuse a model whose weights are not finite, or lead to numbers that are not.

    Args:
        path: Where it is read from or to be written to.
        model: The model.
        in_channels: Number of features.

    Raises:
        InputError: if the model can predict nothing.
    """
    remedy = "training diverged or the file was tampered with; train with a lower learning rate"
    for name, tensor in model.state_dict().items():
        if not (tensor.abs() <= LARGEST_WEIGHT).all():
            raise InputError(f"{path}: {name} is not finite, or beyond all bounds; {remedy}")
    if not _answer(model, in_channels).isfinite().all():
        raise InputError(f"{path}: the model gives no finite numbers; {remedy}")


@torch.no_grad()
def _answer(model: VEPM, in_channels: int) -> Tensor:
    """What a model says of the smallest graph with an edge."""
    device, training = model.activation.device, model.training
    x = torch.ones(2, in_channels, device=device)
    edge_index = torch.tensor([[1, 0], [0, 1]], device=device)
    with seeded(model):
        found = model.eval()(x, edge_index)
    model.train(training)
    return torch.cat([part.flatten() for part in (found.z, found.edge_weight, found.logits)])
