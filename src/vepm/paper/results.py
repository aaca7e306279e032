"""From finished cells to the numbers of a table, ours next to the paper's."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vepm.evaluation import Summary, protocol_named, summarise
from vepm.paper.cells import Record, read_cell
from vepm.paper.experiments import Experiment, task_of
from vepm.paper.plan import EVERY_PRESET, Square, Value, squares
from vepm.paper.runner import Ended
from vepm.paper.studies import WHOLE
from vepm.tasks import TASKS

NO_DATA = "data not here"
DRAWS = (
    "the mean over draws of the affiliations, at the epoch that validation chose or else the last; "
    "nothing was chosen on test data"
)


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
        """The content of a square, if it is here."""
        return next((v for v in self.values if (v.row, v.column) == (row, column)), None)


def gather(
    experiment: Experiment, chosen: Sequence[Square], folder: Path, ended: Ended, quick: bool
) -> Results:
    """Read the finished cells of squares of an experiment."""
    return Results(experiment, tuple(_value(square, folder, ended) for square in chosen), quick)


def all_squares(
    experiment: Experiment, folder: Path, quick: bool = False, seeds: int | None = None
) -> list[Square]:
    """The squares of the experiment's own lines, and of lines of another preset that has run.

    More seeds than the experiment asks for are included; fewer are only a part of it.
    """
    own, asked = (squares(experiment, quick, number, EVERY_PRESET) for number in (None, seeds))
    every = max(own, asked, key=lambda found: sum(len(square.cells) for square in found))
    lines = {line.name for line in (*experiment.rows, *experiment.columns)}
    named = [(square, {square.row, square.column} - lines) for square in every]
    run = {name for square, names in named for name in names if records(square, folder)}
    return [square for square, names in named if names <= run]


def records(square: Square, folder: Path) -> list[Record]:
    """The finished cells of a square."""
    found = (read_cell(folder / cell.path, cell.task.fingerprint) for cell in square.cells)
    return [record for record in found if record is not None]


def _value(square: Square, folder: Path, ended: Ended) -> Value:
    found = records(square, folder)
    tasks = [record.body["task"] for record in found]
    training = tasks[0]["settings"].get("training") if tasks else None
    return Value(
        **vars(square),
        summaries=_summaries(square, found) if found else (),
        reason=_reason(square, len(found), ended),
        seeds=len({task["seed"] for task in tasks}),
        splits=len({task["split"] for task in tasks}),
        pretrained=training is not None
        and training["scheme"] != "scratch"
        and square.method not in WHOLE
        and not TASKS[task_of(square.dataset)].single_graph,
        commits=Counter(record.body.get("commit") for record in found),
    )


def _summaries(square: Square, found: Sequence[Record]) -> tuple[Summary, ...]:
    if (metric := square.metric.name) != "accuracy":
        values = [record.numbers.get(metric, math.nan) for record in found]
        splits = [str(record.body["task"]["split"]) for record in found]
        words = f"{metric.replace('_', ' ')}; nothing was chosen on it"
        return (Summary.of("measured", words, values, splits=splits),)
    results = [record.result for record in found if record.result is not None]
    protocol = protocol_named(square.cells[0].task.protocol)
    by_rule = [summarise(results, rule) for rule in protocol.rules]
    drawn = [r.measures["sampled_accuracy"] for r in results if "sampled_accuracy" in r.measures]
    if drawn and len(drawn) == len(results):
        epochs, splits = [r.best_epoch for r in results], [r.split for r in results]
        by_rule.append(Summary.of("draws", DRAWS, drawn, epochs, splits))
    return tuple(by_rule)


def _reason(square: Square, done: int, ended: Ended) -> str:
    if done == len(square.cells):
        return ""
    if square.dataset in ended.missing:
        return NO_DATA
    failures = [ended.failed.get(cell.task.fingerprint) for cell in square.cells]
    reason = next((f"failed: {failure}" for failure in failures if failure), "not run")
    return f"{reason} ({done} of {len(square.cells)} runs done)" if done else reason
