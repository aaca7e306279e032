"""Numbers that are no longer finite: where they came up, and what to do about it."""

import math
from collections.abc import Sequence

import torch

from vepm.errors import DivergedError
from vepm.training.losses import Terms
from vepm.training.state import Course, TrainingState


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
