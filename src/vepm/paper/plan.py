"""From an experiment to its cells: what is to be run, and where each result lies."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from vepm.baselines import BASELINES, baseline
from vepm.data import datasets, is_recipe
from vepm.errors import InputError
from vepm.evaluation import Protocol, protocol_named
from vepm.paper.experiments import QUOTED, Choice, Experiment, Line, slug
from vepm.paper.studies import STUDIES, TRAINED
from vepm.tasks import TASKS, TaskName
from vepm.training import Config, preset
from vepm.training.legacy import recorded

PRESET = "tuned"
"""Ours, where an experiment does not name another."""
PRESET_ROWS = {
    "paper": "as in the paper",
    "released": "as in the released code",
    "default": "default settings",
}
"""Presets that any row of VEPM can be run with too, and what that row is called."""
EVERY_PRESET = (*PRESET_ROWS, PRESET)
QUICK_SPLITS = 2
QUICK_SEEDS = 1
QUICK_EPOCHS = 2
QUICK_VEPM: dict[str, Any] = {
    "epochs": QUICK_EPOCHS,
    "pretrain_epochs": 3,
    "encoder_interval": 1,
    "passes": 1,
}


@dataclass(frozen=True)
class Task:
    """Everything that decides the outcome of a run, ready for JSON.

    Squares of any experiments that need the same run have equal tasks.
    """

    method: str
    dataset: str
    protocol: str
    split: int
    seed: int
    keep: float
    quick: bool
    settings: Mapping[str, Any] = field(hash=False)

    @cached_property
    def fingerprint(self) -> str:
        """A short name that no other task has."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    @property
    def config(self) -> Config:
        """The settings of VEPM."""
        return Config.from_dict(dict(self.settings))


@dataclass(frozen=True)
class Cell:
    """One run of one square, and the file that holds it, relative to the results."""

    experiment: str
    row: str
    column: str
    task: Task
    preset: str | None = None
    """Of VEPM; None of other methods."""

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
        """Whether it only quotes the paper."""
        return self.choice.method == QUOTED


@dataclass(frozen=True)
class Selection:
    """Which part of the experiments is wanted; everything by default.

    Args:
        datasets: names of datasets, the paper's or ours.
        rows: names of rows, or words of them.
        seeds: number of seeds in place of the experiment's.
        presets: of VEPM, in rows that do not name one; a row for each.
    """

    datasets: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: int | None = None
    presets: tuple[str, ...] = (PRESET,)

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


def squares(
    experiment: Experiment,
    quick: bool = False,
    seeds: int | None = None,
    presets: tuple[str, ...] = (PRESET,),
) -> list[Square]:
    """Every square of an experiment, row by row."""
    found = []
    rows = [line for row in experiment.rows for line in _by_preset(experiment, row, presets)]
    for row in rows:
        for column in experiment.columns:
            choice = experiment.choose(row, column)
            if seeds is not None:
                choice = replace(choice, seeds=seeds)
            named = (experiment.name, row.name, column.name)
            own = None if choice.method in BASELINES else choice.preset or PRESET
            cells = tuple(Cell(*named, task, own) for task in _tasks(choice, quick))
            found.append(Square(row, column, choice, cells))
    return found


def _by_preset(experiment: Experiment, row: Line, presets: tuple[str, ...]) -> list[Line]:
    """A row of VEPM with each of the presets; any other row as it is."""
    decided = experiment.decided() | row.decided()
    if decided.get("method") not in TRAINED or "preset" in decided:
        return [row]
    others = (name for name in PRESET_ROWS if name in presets)
    rows = [replace(row, name=f"{row.name}, {PRESET_ROWS[n]}", preset=n) for n in others]
    return [*rows, row] if PRESET in presets else rows


def select(found: Iterable[Square], selection: Selection) -> list[Square]:
    """The squares a selection takes."""
    return [square for square in found if selection.takes(square)]


def check_selection(experiments: Iterable[Experiment], selection: Selection) -> None:
    """Refuse a selection with a name that no experiment has.

    Raises:
        InputError: with the names there are.
    """
    unknown = [name for name in selection.presets if name not in EVERY_PRESET]
    if unknown:
        raise InputError(f"no preset '{unknown[0]}'; there are {', '.join(EVERY_PRESET)}")
    everything = [s for e in experiments for s in squares(e, True, presets=selection.presets)]
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
    splits, seeds = protocol_of(choice).num_splits, choice.seeds or 1
    if choice.splits is not None:
        splits = min(splits, choice.splits)
    if quick:
        splits, seeds = min(splits, QUICK_SPLITS), min(seeds, QUICK_SEEDS)
    first = resolve(choice, quick)
    for split in range(splits):
        for seed in range(seeds):
            yield replace(first, split=split, seed=seed)


def resolve(choice: Choice, quick: bool) -> Task:
    """The task behind the first run of a square; the others differ in split and seed.

    Raises:
        InputError: if the method, the dataset or a setting is not known.
    """
    protocol = protocol_of(choice).name
    return Task(
        method=choice.method or "",
        dataset=choice.dataset or "",
        protocol=protocol,
        split=0,
        seed=0,
        keep=1.0 if choice.keep is None else float(choice.keep),
        quick=quick,
        settings=_settings(choice, protocol, quick),
    )


def protocol_of(choice: Choice) -> Protocol:
    """The protocol a square is measured by."""
    name = choice.protocol or TASKS[task_of(choice.dataset or "")].protocols[0]
    return protocol_named(name)


@cache
def task_of(dataset: str) -> TaskName:
    """What a dataset labels, nodes or graphs, without loading it."""
    listed = dataset.partition(":")[0] if is_recipe(dataset) else dataset
    for info in datasets():
        if info.name == listed:
            return info.task
    raise InputError(f"unknown dataset '{dataset}'; `vepm datasets` lists those known")


def _settings(choice: Choice, protocol: str, quick: bool) -> dict[str, Any]:
    method = choice.method or ""
    if method in BASELINES:
        epochs = QUICK_EPOCHS if quick else None
        chosen = baseline(method, choice.dataset, epochs=epochs, settings=choice.settings)
        return {key: value for key, value in chosen.settings().items() if key != "device"}
    if method != "vepm" and method not in STUDIES:
        known = ["vepm", *BASELINES, *STUDIES]
        raise InputError(f"no method '{method}'; there are {', '.join(known)}")
    partition = choice.settings.get("partition")
    config = preset(
        choice.preset or PRESET, task_of(choice.dataset or ""), choice.dataset, partition
    )
    config = config.replace(**choice.settings)
    if protocol == "gin":
        # One epoch is chosen for all folds, so all must run equally long.
        config = config.replace(patience=0)
    if quick:
        config = config.replace(**QUICK_VEPM)
    return recorded(config)
