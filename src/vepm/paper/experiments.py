"""Experiments: rows, columns, how each square is measured, and what the paper printed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Any, Self

QUOTED = "quoted"
"""Method of rows that only quote the paper."""


@dataclass(frozen=True)
class Metric:
    """How a number is written.

    Args:
        unit: written beside it.
        scale: what it is multiplied by.
        decimals: digits after the point.
        exact: whether it has no spread, so that any difference counts.
    """

    unit: str = ""
    scale: float = 1.0
    decimals: int = 2
    exact: bool = False

    def text(self, value: float) -> str:
        """The value as it is written."""
        written = f"{self.scale * value:.{self.decimals}f}"
        whole = self.exact and abs(self.scale * value) >= 100
        return written.removesuffix(".0") if whole else written


_PERCENT, _COUNT = Metric("%", 100.0, 1), Metric(decimals=1, exact=True)

METRICS: dict[str, Metric] = {
    "accuracy": _PERCENT,
    "svm_accuracy": _PERCENT,
    "seconds_per_epoch": Metric("s", decimals=3),
    "calibration_error": _PERCENT,
    "sampled_calibration_error": _PERCENT,
    "fitted_calibration_error": _PERCENT,
    "partition_entropy": Metric(decimals=3),
    "evened_accuracy": _PERCENT,
    "shuffled_accuracy": _PERCENT,
    "split_gradient": _PERCENT,
    "label_gradient": _PERCENT,
    "nmi_pretrained": Metric(decimals=3),
    "nmi_finetuned": Metric(decimals=3),
    "graphs": _COUNT,
    "nodes": _COUNT,
    "edges": _COUNT,
    "features": _COUNT,
    "classes": _COUNT,
    "size_imbalance": Metric(),
    "density_ratio": Metric(),
    "overlap": Metric(),
    "task_dependence": Metric(decimals=3),
}
"""Everything that a square can show."""


@dataclass(frozen=True)
class Choice:
    """What the whole experiment, a row or a column decides; None leaves it to the others.

    Args:
        dataset: name of a dataset.
        method: ``"vepm"``, a baseline, a study, or ``"quoted"``.
        metric: what is read from the runs.
        protocol: name of a protocol; by default that of the dataset's task.
        keep: share of the training labels that is kept.
        seeds: number of seeds.
        splits: number of the protocol's splits to run; all by default.
        settings: changes to the settings of the method.
    """

    dataset: str | None = None
    method: str | None = None
    metric: str | None = None
    protocol: str | None = None
    keep: float | None = None
    seeds: int | None = None
    splits: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def over(self, weaker: Self) -> Self:
        """This choice where it has an opinion, the other elsewhere; settings are joined."""
        own = {k: v for k, v in vars(self).items() if v is not None and k != "settings"}
        return replace(weaker, **own, settings={**weaker.settings, **self.settings})


CHOICES = frozenset(item.name for item in fields(Choice))


@dataclass(frozen=True)
class Printed:
    """A number, or a word, as the paper prints it; neither where it prints a dash."""

    value: float | str | None = None
    spread: float | None = None


@dataclass(frozen=True)
class Line:
    """A row or a column.

    Args:
        name: as in the paper.
        choice: what it decides.
        paper: what the paper prints, by column; rows only.
        yes: values that bear out a YES of the paper; rows only.
    """

    name: str
    choice: Choice = Choice()
    paper: Mapping[str, Printed] = field(default_factory=dict)
    yes: tuple[float, float] | None = None


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Args:
        name: what to ask for, for example ``"table-2"``.
        title: its heading.
        description: what it shows, in a line.
        rows: top to bottom.
        columns: left to right.
        choice: what holds for all squares unless a row or column says otherwise.
        figure: kind of figure to draw; none for tables.
        notes: what a reader of the numbers should know.
    """

    name: str
    title: str
    description: str
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    choice: Choice = Choice()
    figure: str | None = None
    notes: tuple[str, ...] = ()

    def choose(self, row: Line, column: Line) -> Choice:
        """Everything that is decided about one square."""
        layers = (self.choice, row.choice, column.choice)
        return reduce(lambda weaker, stronger: stronger.over(weaker), layers)

    def printed(self, row: Line, column: Line) -> Printed:
        """What the paper has in a square."""
        return row.paper.get(column.name, Printed())


def slug(name: str) -> str:
    """A name that can be a folder's.

    Example:
        >>> slug("VEPM (even partition)")
        'vepm-even-partition'
    """
    # No dots at the ends: two of them would mean the folder above.
    return re.sub(r"[^A-Za-z0-9.=]+", "-", name).strip("-.").lower()
