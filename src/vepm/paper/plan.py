"""From an experiment to its cells: what is to be run, and where each result lies."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vepm.errors import InputError
from vepm.paper.specification import QUOTED, Choice, Experiment, Line, slug
from vepm.paper.tasks import Task, protocol_of, resolve

SPLITS = {"public": 1, "wikics": 20, "gin": 10, "capsgnn": 10}
"""Number of splits of each protocol."""
QUICK_SPLITS = 2
QUICK_SEEDS = 1


@dataclass(frozen=True)
class Cell:
    """One run of one square, and the file that holds it, relative to the results."""

    experiment: str
    row: str
    column: str
    task: Task

    @property
    def path(self) -> Path:
        """Where the result lies."""
        run = f"{self.task.protocol}-{self.task.split}-seed-{self.task.seed}.json"
        return Path(self.experiment) / "cells" / slug(self.row) / slug(self.column) / run


@dataclass(frozen=True)
class Square:
    """A row and a column of an experiment, with the runs behind its number."""

    row: Line
    column: Line
    choice: Choice
    cells: tuple[Cell, ...]

    @property
    def quoted(self) -> bool:
        """Whether the paper's word is all there is."""
        return self.choice.method == QUOTED


@dataclass(frozen=True)
class Selection:
    """What part of the experiments is wanted; everything by default.

    Args:
        datasets: names of datasets, the paper's or ours.
        rows: names of rows, or words of them.
        seeds: number of seeds in place of the experiment's.
    """

    datasets: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: int | None = None

    def takes(self, square: Square) -> bool:
        """Whether a square is wanted."""
        wanted = {name.lower() for name in self.datasets}
        called = {(square.choice.dataset or "").lower(), square.column.name.lower()}
        return (not wanted or bool(wanted & called)) and (
            not self.rows or any(_words(part) <= _words(square.row.name) for part in self.rows)
        )


def _words(name: str) -> set[str]:
    """Words of a name: GCN is one of "Cora, GCN" and none of "GCN-64"."""
    return set(re.findall(r"[\w=-]+", name.lower()))


EVERYTHING = Selection()


def squares(experiment: Experiment, quick: bool = False, seeds: int | None = None) -> list[Square]:
    """Every square of an experiment, row by row.

    Args:
        experiment: the experiment.
        quick: as little as shows that everything works.
        seeds: number of seeds in place of the experiment's.
    """
    found = []
    for row in experiment.rows:
        for column in experiment.columns:
            choice = experiment.choose(row, column)
            if seeds is not None:
                choice = replace(choice, seeds=seeds)
            named = (experiment.name, row.name, column.name)
            cells = tuple(Cell(*named, task) for task in _tasks(choice, quick))
            found.append(Square(row, column, choice, cells))
    return found


def select(found: Iterable[Square], selection: Selection) -> list[Square]:
    """The squares a selection takes."""
    return [square for square in found if selection.takes(square)]


def check_selection(experiments: Iterable[Experiment], selection: Selection) -> None:
    """Refuse a selection with a name that no experiment knows.

    Raises:
        InputError: with the names there are.
    """
    everything = [square for experiment in experiments for square in squares(experiment, True)]
    datasets = dict.fromkeys(square.choice.dataset or "" for square in everything)
    rows = dict.fromkeys(square.row.name for square in everything)
    asked = [
        ("dataset", name, Selection(datasets=(name,)), datasets) for name in selection.datasets
    ]
    asked += [("row", name, Selection(rows=(name,)), rows) for name in selection.rows]
    for what, name, part, known in asked:
        if not select(everything, part):
            raise InputError(f"no {what} '{name}' here; there are {', '.join(known)}")


def _tasks(choice: Choice, quick: bool) -> Iterator[Task]:
    if choice.method == QUOTED:
        return
    splits = SPLITS[protocol_of(choice)]
    seeds = choice.seeds or 1
    if choice.splits is not None:
        splits = min(splits, choice.splits)
    if quick:
        splits, seeds = min(splits, QUICK_SPLITS), min(seeds, QUICK_SEEDS)
    first = resolve(choice, quick)
    for split in range(splits):
        for seed in range(seeds):
            yield replace(first, split=split, seed=seed)
