"""What an experiment is: rows, columns, how each square is measured, and what the paper printed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Any, Self

from vepm.errors import InputError
from vepm.paper.metrics import METRICS

QUOTED = "quoted"
"""Method of rows that are the paper's word alone."""


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
    """A name fit for a folder.

    Example:
        >>> slug("VEPM (even partition)")
        'vepm-even-partition'
    """
    # Without dots at its ends, lest it mean the folder above.
    return re.sub(r"[^A-Za-z0-9.=]+", "-", name).strip("-.").lower()


def check(experiment: Experiment) -> Experiment:
    """Refuse an experiment whose lines contradict each other or leave something open.

    Raises:
        InputError: saying which line and what.
    """
    where = experiment.name
    for lines in (experiment.rows, experiment.columns):
        names = [slug(line.name) for line in lines]
        if not all(names) or not names or len(set(names)) != len(names):
            raise InputError(f"{where}: needs rows and columns, each of a name of its own")
    for row in experiment.rows:
        _check_paper(where, row, experiment.columns)
        for column in experiment.columns:
            _check_square(f"{where}, {row.name}, {column.name}", experiment, row, column)
    return experiment


def _check_paper(where: str, row: Line, columns: tuple[Line, ...]) -> None:
    known = {column.name for column in columns}
    if row.paper and set(row.paper) != known:
        wrong = ", ".join(sorted(known ^ set(row.paper)))
        raise InputError(f'{where}, {row.name}: paper has other columns: {wrong} (write "-")')


def _check_square(where: str, experiment: Experiment, row: Line, column: Line) -> None:
    twice = [
        name
        for name in CHOICES - {"settings"}
        if getattr(row.choice, name) is not None and getattr(column.choice, name) is not None
    ]
    twice += sorted(set(row.choice.settings) & set(column.choice.settings))
    if twice:
        raise InputError(f"{where}: both row and column decide {twice[0]}")
    chosen = experiment.choose(row, column)
    if chosen.dataset is None or chosen.method is None:
        raise InputError(f"{where}: nothing says which dataset or which method")
    if chosen.metric not in (None, *METRICS):
        raise InputError(f"{where}: no metric '{chosen.metric}'; there are {', '.join(METRICS)}")
