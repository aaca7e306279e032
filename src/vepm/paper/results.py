"""From finished cells to the numbers of a table, ours beside the paper's."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vepm.evaluation import Summary, summarise
from vepm.paper.cells import Record, read_cell
from vepm.paper.experiments import METRICS, QUOTED, Experiment, Metric, Printed
from vepm.paper.plan import Square, protocol_of, task_of
from vepm.paper.runner import Ended
from vepm.paper.studies import WHOLE

NO_DATA = "data not here"
DRAWS = (
    "the mean over draws of the affiliations, at the epoch that validation chose or else the last; "
    "nothing was chosen on test data"
)


@dataclass(frozen=True)
class Value:
    """What stands in one square, by the names of its row and column."""

    row: str
    column: str
    metric: Metric
    printed: Printed
    quoted: bool
    summaries: tuple[Summary, ...] = ()  # by every rule of the protocol, the main one first
    planned: int = 0
    reason: str = ""  # why some of the planned runs are missing
    method: str = ""
    preset: str | None = None
    dataset: str = ""
    seeds: int = 0
    splits: int = 0
    yes: list[float] | None = None
    pretraining: str = ""  # of VEPM on many graphs, if any: whether it saw all or the training ones
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
        # Printed numbers are rounded: their last digit decides nothing.
        margin = max(metric.scale * ours.standard_error, 0.5 * 10**-metric.decimals)
        gap = metric.scale * ours.mean - theirs
        return "" if abs(gap) <= margin + 1e-9 else "▲" if gap > 0 else "▼"

    @property
    def verdict(self) -> str:
        """YES or NO where the paper says one of them, by our numbers."""
        if self.main is None or self.yes is None or self.printed.value not in ("YES", "NO"):
            return ""
        return "YES" if self.yes[0] <= self.main.mean <= self.yes[1] else "NO"


@dataclass(frozen=True)
class Results:
    """An experiment with what is known of it, by the names of rows and columns."""

    experiment: Experiment
    values: tuple[Value, ...]
    quick: bool

    @property
    def rows(self) -> list[str]:
        """Names of the rows that have a square here."""
        return list(dict.fromkeys(value.row for value in self.values))

    @property
    def columns(self) -> list[str]:
        """Names of the columns that have a square here."""
        return list(dict.fromkeys(value.column for value in self.values))

    def at(self, row: str, column: str) -> Value | None:
        """What stands in a square, if it is here."""
        return next((v for v in self.values if (v.row, v.column) == (row, column)), None)


def gather(
    experiment: Experiment, chosen: Sequence[Square], folder: Path, ended: Ended, quick: bool
) -> Results:
    """Read the finished cells of squares of an experiment."""
    return Results(experiment, tuple(_value(square, folder, ended) for square in chosen), quick)


def with_finished_presets(
    experiment: Experiment, found: Sequence[Square], folder: Path
) -> list[Square]:
    """The squares of the experiment's own lines, and of lines of another preset that has run."""
    own = {line.name for line in (*experiment.rows, *experiment.columns)}
    named = [(square, {square.row.name, square.column.name} - own) for square in found]
    run = {name for square, names in named for name in names if records(square, folder)}
    return [square for square, names in named if names <= run]


def records(square: Square, folder: Path) -> list[Record]:
    """The finished cells of a square."""
    found = (read_cell(folder / cell.path, cell.task.fingerprint) for cell in square.cells)
    return [record for record in found if record is not None]


def _value(square: Square, folder: Path, ended: Ended) -> Value:
    name = square.choice.metric or "accuracy"
    found = records(square, folder)
    tasks = [record.body["task"] for record in found]
    return Value(
        row=square.row.name,
        column=square.column.name,
        metric=METRICS[name],
        printed=square.printed,
        quoted=square.choice.method == QUOTED,
        summaries=_summaries(square, name, found) if found else (),
        planned=len(square.cells),
        reason=_reason(square, len(found), ended),
        method=square.choice.method or "",
        preset=square.cells[0].preset if square.cells else None,
        dataset=square.choice.dataset or "",
        seeds=len({task["seed"] for task in tasks}),
        splits=len({task["split"] for task in tasks}),
        yes=square.row.yes,
        pretraining=_pretraining(tasks[0]) if tasks else "",
        commits=Counter(record.body.get("commit") for record in found),
    )


def _pretraining(task: dict[str, Any]) -> str:
    training = task["settings"].get("training", {})
    none = task["method"] in WHOLE or task_of(task["dataset"]) == "node"
    return "" if none or training.get("scheme") == "scratch" else training.get("pretraining", "")


def _summaries(square: Square, metric: str, found: Sequence[Record]) -> tuple[Summary, ...]:
    if metric != "accuracy":
        values = [record.numbers.get(metric, math.nan) for record in found]
        splits = [str(record.body["task"]["split"]) for record in found]
        words = f"{metric.replace('_', ' ')}; nothing was chosen on it"
        return (Summary.of("measured", words, values, splits=splits),)
    results = [record.result for record in found if record.result is not None]
    by_rule = [summarise(results, rule) for rule in protocol_of(square.choice).rules]
    drawn = [r.measures["sampled_accuracy"] for r in results if "sampled_accuracy" in r.measures]
    if drawn and len(drawn) == len(results):
        epochs, splits = [r.best_epoch for r in results], [r.split for r in results]
        by_rule.append(Summary.of("draws", DRAWS, drawn, epochs, splits))
    return tuple(by_rule)


def _reason(square: Square, done: int, ended: Ended) -> str:
    if done == len(square.cells):
        return ""
    if square.choice.dataset in ended.missing:
        return NO_DATA
    failures = [ended.failed.get(cell.task.fingerprint) for cell in square.cells]
    reason = next((f"failed: {failure}" for failure in failures if failure), "not run")
    return f"{reason} ({done} of {len(square.cells)} runs done)" if done else reason
