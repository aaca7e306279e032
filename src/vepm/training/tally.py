"""Means of an epoch's terms, left on the device until it has ended."""

import math

from torch import Tensor, stack

from vepm.training.divergence import diverged, diverged_term
from vepm.training.losses import Terms
from vepm.training.ranks import Team
from vepm.training.state import Course, Row


class Tally:
    """Collects the terms of an epoch's steps."""

    def __init__(self) -> None:
        self.steps: list[Terms] = []
        self.labels = 0

    def add(self, terms: Terms, labels: int = 0) -> None:
        """Count a step that saw so many labels."""
        self.steps.append(terms.detached())
        self.labels += labels

    def means(self) -> dict[str, Tensor]:
        """Mean of each term over the steps that had it."""
        columns = zip(Terms._fields, zip(*self.steps, strict=True), strict=True)
        present = {name: [v for v in column if v is not None] for name, column in columns}
        return {name: stack(values).double().mean(0) for name, values in present.items() if values}

    def row(self, course: Course, team: Team) -> Row:
        """The epoch's entries of the history, the shares of all processes together."""
        names, values = zip(*self.means().items(), strict=True)
        labels = values[0].new_tensor(self.labels)
        *found, labelled = team.sum(stack([*values, labels])).tolist()
        row = dict(zip(names, found, strict=True))
        if not all(map(math.isfinite, row.values())):
            raise diverged_term(self.steps, course)
        return count_correct(row, len(self.steps), int(labelled))


def check_finite(row: Row, course: Course) -> None:
    """Refuse to go on with numbers that have left all bounds."""
    # The loss stands first, but a term it is made of says more about the cause.
    for name in reversed(row):
        if not math.isfinite(row[name]):
            raise diverged(f"{name} is {row[name]}", "a step", course)


def count_correct(row: Row, steps: int, labels: int) -> Row:
    """Turn the mean number of correct labels per step into the share of all labels."""
    if "correct" in row:
        row["train_accuracy"] = row.pop("correct") * steps / max(labels, 1)
    return row
