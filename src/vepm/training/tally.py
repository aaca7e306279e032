"""Means of an epoch's terms, and what is said when they are not finite."""

import math
from collections.abc import Sequence

from torch import Tensor, stack

from vepm.errors import DivergedError
from vepm.objective import Terms
from vepm.scale.executor import Row
from vepm.training.state import Course, TrainingState


class Tally:
    """Collects the terms of an epoch's steps, left on the device until it has ended."""

    def __init__(self) -> None:
        self.steps: list[Terms] = []
        self.labels: list[Sequence[int]] = []

    def add(self, terms: Terms, labels: Sequence[int] = ()) -> None:
        """Count a step that saw so many labels of each run."""
        self.steps.append(terms.detached())
        self.labels.append(labels)

    def means(self) -> dict[str, Tensor]:
        """Mean of each term over the steps that had it."""
        columns = zip(Terms._fields, zip(*self.steps, strict=True), strict=True)
        given = {name: [v for v in column if v is not None] for name, column in columns}
        return {name: stack(values).double().mean(0) for name, values in given.items() if values}

    def rows(self, state: TrainingState, active: Sequence[int]) -> list[Row]:
        """The epoch's entries in the history of every run.

        Raises:
            DivergedError: if a term or the weights of an active run are not finite.
        """
        runs, means = len(state.courses), self.means()
        labels = [sum(counts) for counts in zip(*self.labels, strict=True)] or [0] * runs
        first = next(iter(means.values()))
        means["labels"] = first.new_tensor(labels)
        means["weights"] = state.executor.weight_sums().double()
        values = stack([value.reshape(runs) for value in means.values()])
        columns = state.executor.sum(values).tolist()
        rows = [dict(zip(means, row, strict=True)) for row in zip(*columns, strict=True)]
        for run in active:
            self._check(rows[run], run, state.courses[run])
        return [self._finished(row) for row in rows]

    def _finished(self, row: Row) -> Row:
        labels = row.pop("labels")
        del row["weights"]
        if "correct" in row:
            row["train_accuracy"] = row.pop("correct") * len(self.steps) / max(labels, 1)
        return row

    def _check(self, row: Row, run: int, course: Course) -> None:
        """Stop where values are no longer finite, and name the first that was not."""
        weights = row["weights"]
        if not all(math.isfinite(row[name]) for name in row if name != "weights"):
            raise self._diverged_term(run, course)
        if not math.isfinite(weights):
            raise diverged("a gradient is not finite", "the last step", course)

    def _diverged_term(self, run: int, course: Course) -> DivergedError:
        for step, terms in enumerate(self.steps):
            # The loss comes first, but the term that made it so says more about the cause.
            for name, values in reversed(list(terms._asdict().items())):
                value = None if values is None else float(values.reshape(-1)[run])
                if value is not None and not math.isfinite(value):
                    return diverged(f"{name} is {value}", f"step {step}", course)
        return diverged("the sum of a term overflows", "the steps", course)


def diverged(what: str, where: str, course: Course) -> DivergedError:
    """The error for values that are no longer finite."""
    return DivergedError(
        f"training diverged: {what} in {where} of epoch {course.epoch} of {course.phase}; "
        "lower the learning rate or check the features' scale"
    )
