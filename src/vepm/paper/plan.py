"""From an experiment to its cells: squares of a table, what is to be run, where results lie."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from vepm.baselines import BASELINES, baseline
from vepm.errors import InputError
from vepm.evaluation import Summary, protocol_named
from vepm.paper.cells import Cell, Task
from vepm.paper.communities import DIVISIONS
from vepm.paper.experiments import (
    METRICS,
    QUOTED,
    Choice,
    Experiment,
    Line,
    Metric,
    Printed,
    task_of,
)
from vepm.paper.studies import STUDIES, TRAINED
from vepm.tasks import TASKS
from vepm.training import preset
from vepm.training.config import recorded

PRESET = "tuned"  # ours, where an experiment does not name another
PRESET_ROWS = {
    "paper": "as in the paper",
    "released": "as in the released code",
    "default": "default settings",
}
"""Presets that any row or column of VEPM can be run with too, and what that one is called."""
EVERY_PRESET = (*PRESET_ROWS, PRESET)
QUICK_SPLITS, QUICK_SEEDS, QUICK_EPOCHS = 2, 1, 2
QUICK_VEPM = {"epochs": QUICK_EPOCHS, "pretrain_epochs": 3, "encoder_interval": 1, "passes": 1}


@dataclass(frozen=True, kw_only=True)
class Square:
    """Where a row and a column meet: what is measured there, by which runs, and the paper's."""

    row: str
    column: str
    dataset: str
    method: str
    preset: str | None  # VEPM's, None of other methods
    metric: Metric
    printed: Printed
    cells: tuple[Cell, ...]

    @property
    def quoted(self) -> bool:
        """Whether it only quotes the paper."""
        return self.method == QUOTED


@dataclass(frozen=True, kw_only=True)
class Value(Square):
    """The content of a square."""

    summaries: tuple[Summary, ...] = ()  # by every rule of the protocol, the main one first
    reason: str = ""  # why some of the planned runs are missing
    seeds: int = 0
    splits: int = 0
    pretrained: bool = False  # whether VEPM had seen all graphs of the set, without labels
    commits: Counter[str | None] = field(default_factory=Counter)

    @property
    def main(self) -> Summary | None:
        """Ours by the protocol's own rule."""
        return self.summaries[0] if self.summaries else None

    @property
    def mark(self) -> str:
        """▲ or ▼ where ours differs by more than our standard error, ≠ from another YES or NO."""
        ours, theirs, metric = self.main, self.printed.value, self.metric
        if self.verdict:
            return "" if self.verdict == theirs else "≠"
        if ours is None or not isinstance(theirs, float) or (ours.n < 2 and not metric.exact):
            return ""
        # Printed numbers are rounded, so differences in their last digit do not count.
        margin = max(metric.scale * ours.standard_error, 0.5 * 10**-metric.decimals)
        gap = metric.scale * ours.mean - theirs
        return "" if abs(gap) <= margin + 1e-9 else "▲" if gap > 0 else "▼"

    @property
    def verdict(self) -> str:
        """YES or NO where the paper says one of them, by our numbers."""
        yes = self.printed.yes
        if self.main is None or yes is None or self.printed.value not in ("YES", "NO"):
            return ""
        return "YES" if yes[0] <= self.main.mean <= yes[1] else "NO"


def _words(name: str) -> set[str]:
    """Words of a name: GCN is one of "Cora, GCN" and none of "GCN-64"."""
    return set(re.findall(r"[\w=-]+", name.lower()))


def select(
    found: Iterable[Square], datasets: Sequence[str] = (), rows: Sequence[str] = ()
) -> list[Square]:
    """Squares of the datasets, by the paper's name or ours, and of rows that have these words."""
    wanted, words = {name.lower() for name in datasets}, [_words(row) for row in rows]
    return [
        square
        for square in found
        if (not words or any(own <= _words(square.row) for own in words))
        and (not wanted or wanted & {square.dataset.lower(), square.column.lower()})
    ]


def check_names(
    found: Sequence[Square], datasets: Sequence[str] = (), rows: Sequence[str] = ()
) -> None:
    """Refuse a dataset or row that selects no square; the error lists those there are."""
    for kind, names in (("dataset", datasets), ("row", rows)):
        for name in names:
            if not select(found, **{f"{kind}s": [name]}):
                known = ", ".join(dict.fromkeys(getattr(square, kind) for square in found))
                raise InputError(f"no {kind} '{name}' here; there are {known}")


def squares(
    experiment: Experiment,
    quick: bool = False,
    seeds: int | None = None,
    presets: Sequence[str] = (PRESET,),
) -> list[Square]:
    """Every square of an experiment, row by row.

    Rows and columns of VEPM that name no preset are there once for each of the presets.
    """
    for name in presets:
        if name not in EVERY_PRESET:
            raise InputError(f"no preset '{name}'; there are {', '.join(EVERY_PRESET)}")
    found = []
    rows = [line for row in experiment.rows for line in _by_preset(experiment, row, presets)]
    columns = [
        (own.name, line)
        for own in experiment.columns
        for line in (_by_preset(experiment, own, presets) if own.method else [own])
    ]
    for row, (printed_as, column) in product(rows, columns):
        choice = experiment.choose(row, column)
        others = choice.method in (*BASELINES, *DIVISIONS, QUOTED)
        own = None if others else choice.preset or PRESET
        named = (experiment.name, row.name, column.name)
        cells = (Cell(*named, task, own) for task in tasks_of(choice, quick, seeds))
        found.append(
            Square(
                row=row.name,
                column=column.name,
                dataset=choice.dataset,
                method=choice.method,
                preset=own,
                metric=METRICS[choice.metric],
                printed=row.paper.get(printed_as, Printed()),
                cells=tuple(cells),
            )
        )
    return found


def _by_preset(experiment: Experiment, line: Line, presets: Sequence[str]) -> list[Line]:
    """A row or column of VEPM with each of the presets; any other as it is."""
    decided = experiment.decided() | line.decided()
    if decided.get("method") not in TRAINED or "preset" in decided:
        return [line]
    # A row's additional seeds are for our settings alone.
    seeds = min(line.seeds, experiment.seeds)
    lines = [
        replace(line, name=f"{line.name}, {words}", preset=name, seeds=seeds)
        for name, words in PRESET_ROWS.items()
        if name in presets
    ]
    return [*lines, line] if PRESET in presets else lines


def tasks_of(choice: Choice, quick: bool = False, seeds: int | None = None) -> list[Task]:
    """The runs behind a square: every split with every seed."""
    if choice.method == QUOTED:
        return []
    protocol = protocol_named(choice.protocol or TASKS[task_of(choice.dataset)].protocols[0])
    splits = min(protocol.num_splits, choice.splits or protocol.num_splits)
    seeds = seeds or choice.seeds or 1
    if quick:
        splits, seeds = min(splits, QUICK_SPLITS), min(seeds, QUICK_SEEDS)
    named, keep = (choice.method, choice.dataset, protocol.name), float(choice.keep or 1)
    settings = _settings(choice, protocol.name, quick)
    runs = product(range(splits), range(seeds))
    return [Task(*named, *run, keep, quick, settings) for run in runs]


def _settings(choice: Choice, protocol: str, quick: bool) -> dict[str, Any]:
    """All settings of a method, by which its runs are told apart."""
    method, dataset, changes = choice.method, choice.dataset, choice.settings
    if method in BASELINES:
        epochs = QUICK_EPOCHS if quick else None
        settings = baseline(method, dataset, epochs=epochs, settings=changes).settings()
        return {name: value for name, value in settings.items() if name != "device"}
    if method != "vepm" and method not in STUDIES:
        there = ", ".join(["vepm", *BASELINES, *STUDIES])
        raise InputError(f"no method '{method}'; there are {there}")
    known = choice.preset or PRESET, task_of(dataset), dataset, changes.get("partition")
    config = preset(*known).replace(**changes)
    if protocol == "gin":
        # One epoch is chosen for all folds, so all must run equally long.
        config = config.replace(patience=0)
    return recorded(config.replace(**QUICK_VEPM) if quick else config)
