"""Experiments as TOML files: rows, columns, how each square is measured, what the paper printed."""

import re
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from vepm.data import datasets, is_recipe
from vepm.errors import InputError
from vepm.files import read_toml
from vepm.schema import MOST_RUNS, checked, is_of_type, read
from vepm.tasks import TaskName
from vepm.training import PRESETS

FIGURES = ("curves", "subgraph", "adjacency", "tsne", "confusion")
FOLDER = Path(__file__).parent
QUOTED = "quoted"  # method of rows that only quote the paper


@dataclass(frozen=True)
class Metric:
    """A number that a square can show, and how it is written."""

    name: str
    unit: str = ""
    scale: float = 1.0
    decimals: int = 2
    exact: bool = False  # whether it has no spread, so that any difference counts

    def text(self, value: float) -> str:
        """The value as it is written."""
        written = f"{self.scale * value:.{self.decimals}f}"
        return written.removesuffix(".0") if self.exact else written


_PERCENT = (
    "accuracy", "macro_f1", "roc_auc", "sampled_accuracy", "svm_accuracy", "evened_accuracy",
    "shuffled_accuracy", "calibration_error", "sampled_calibration_error",
    "fitted_calibration_error", "split_gradient", "label_gradient", "kind_ranking", "auc",
    "average_precision", "hard_auc", "rate_auc", "surroundings_auc", "overlapping_nmi", "nmi",
)  # fmt: skip
_THREE_DIGITS = (
    "partition_entropy", "parts_by_kind", "task_dependence", "nmi_pretrained", "nmi_finetuned",
    "affiliation_nmi_pretrained", "affiliation_nmi_finetuned",
)  # fmt: skip
_COUNTS = ("graphs", "nodes", "edges", "features", "classes")

_EVERY = (
    *(Metric(name, "%", 100.0, 1) for name in _PERCENT),
    *(Metric(name, decimals=3) for name in _THREE_DIGITS),
    *(Metric(name, decimals=1, exact=True) for name in _COUNTS),
    *(Metric(name) for name in ("size_imbalance", "density_ratio", "overlap")),
    Metric("seconds_per_epoch", "s", decimals=3),
)
METRICS = {metric.name: metric for metric in _EVERY}


@dataclass(frozen=True)
class Choice:
    """What the experiment, a row or a column decides; what is empty or 0 is left open."""

    dataset: str = ""
    method: str = ""  # "vepm", a baseline, a study, or "quoted"
    preset: str = checked("", choices=PRESETS)
    metric: str = checked("", choices=METRICS)
    protocol: str = ""  # by default that of the dataset's task
    keep: float = checked(0.0, above=0, high=1)  # share of the training labels, all by default
    seeds: int = checked(0, low=1, high=MOST_RUNS)
    splits: int = checked(0, low=1, high=MOST_RUNS)  # all by default
    settings: dict[str, Any] = field(default_factory=dict)  # changes to the method's or preset's

    def decided(self) -> dict[str, Any]:
        """What it decides, other than settings."""
        names = [item.name for item in fields(Choice) if item.name != "settings"]
        return {name: getattr(self, name) for name in names if getattr(self, name)}


@dataclass(frozen=True)
class Printed:
    """A number, or a word, as the paper prints it; neither where it prints a dash."""

    value: float | str | None = None
    spread: float | None = None
    yes: list[float] | None = None  # the least and the most that bear out a YES


@dataclass(frozen=True, kw_only=True)
class Line(Choice):
    """A row or a column, and what it decides."""

    name: str
    paper: dict[str, Any] = field(default_factory=dict)  # what it prints in each column of a row
    yes: list[float] | None = None  # the least and the most that bear out a YES there


@dataclass(frozen=True, kw_only=True)
class Experiment(Choice):
    """A table or figure of the paper, and what all its squares share unless a line differs."""

    name: str
    title: str
    description: str
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    metric: str = checked("accuracy", choices=METRICS)
    seeds: int = checked(1, low=1, high=MOST_RUNS)
    figure: str | None = checked(None, choices=FIGURES)  # a table alone without
    notes: list[str] = field(default_factory=list)  # what a reader should know

    def choose(self, row: Line, column: Line) -> Choice:
        """Everything that is decided about one square."""
        settings = {**self.settings, **row.settings, **column.settings}
        decided = {**self.decided(), **row.decided(), **column.decided()}
        return Choice(**decided, settings=settings)


def slug(name: str) -> str:
    """A name that can be a folder's: ``vepm-even-partition`` for VEPM (even partition)."""
    # No dots at the ends: two of them would mean the folder above.
    return re.sub(r"[^A-Za-z0-9.=]+", "-", name).strip("-.").lower()


@cache
def catalogue(folder: Path = FOLDER) -> dict[str, Experiment]:
    """Every experiment of a folder by name, tables first, in the order of their numbers."""
    paths = sorted(folder.glob("*.toml"), key=_order)
    if not paths:
        raise InputError(f"{folder}: has no experiments (*.toml)")
    return {path.stem: read_experiment(path) for path in paths}


def _order(path: Path) -> tuple[int, int, str]:
    kind, _, rest = path.stem.partition("-")
    digits = re.match(r"\d+", rest)
    place = {"table": 0, "figure": 1}.get(kind, 2)
    return place, int(digits[0]) if digits else 0, path.stem


def read_experiment(path: Path) -> Experiment:
    """The experiment in a TOML file, named after the file."""
    values, where = read_toml(path), path.stem
    if not re.fullmatch(r"\w[\w.-]*", where) or "name" in values:
        raise InputError(f"{path}: an experiment is named after its file; use letters and digits")
    for key in {"rows", "columns"} & set(values):
        if not isinstance(values[key], list):
            raise InputError(f"{where}: {key} must be a list")
        values[key] = tuple(_line(where, key.removesuffix("s"), line) for line in values[key])
    experiment = read(Experiment, {"name": where} | values, where)
    _check(experiment)
    return experiment


@cache
def task_of(dataset: str) -> TaskName:
    """What a dataset labels, nodes or graphs, without loading it."""
    listed = dataset.partition(":")[0] if is_recipe(dataset) else dataset
    for info in datasets():
        if info.name == listed:
            return info.task
    raise InputError(f"unknown dataset '{dataset}'; `vepm datasets` lists those known")


def _line(where: str, kind: str, values: Any) -> Line:
    if isinstance(values, str):
        return Line(name=values, dataset=values)
    line = read(Line, values, f"{where}, {kind}")
    where = f"{where}, {line.name}"
    if kind == "column" and (line.paper or line.yes):
        raise InputError(f"{where}: paper and yes belong to rows")
    if line.yes is not None and len(line.yes) != 2:
        raise InputError(f"{where}: yes must be two numbers, the least and the most")
    paper = {c: replace(_printed(where, value), yes=line.yes) for c, value in line.paper.items()}
    return replace(line, paper=paper)


def _printed(where: str, value: Any) -> Printed:
    if isinstance(value, list):
        if len(value) != 2 or not is_of_type(value, list[float]):
            raise InputError(f"{where}: {value} is not a mean and a spread")
        return Printed(float(value[0]), float(value[1]))
    if not isinstance(value, str | int | float):
        raise InputError(f"{where}: {value!r} is neither a number nor text")
    return Printed(None if value == "-" else value if isinstance(value, str) else float(value))


def _check(experiment: Experiment) -> None:
    """Refuse an experiment whose lines contradict each other or leave a dataset or method open."""
    where, columns = experiment.name, {column.name for column in experiment.columns}
    for lines in (experiment.rows, experiment.columns):
        names = [slug(line.name) for line in lines]
        if not all(names) or not names or len(set(names)) != len(names):
            raise InputError(f"{where}: needs rows and columns, each of a name of its own")
    for row, column in product(experiment.rows, experiment.columns):
        if row.paper and set(row.paper) != columns:
            wrong = ", ".join(sorted(columns ^ set(row.paper)))
            raise InputError(f'{where}, {row.name}: paper has other columns: {wrong} (write "-")')
        place = f"{where}, {row.name}, {column.name}"
        twice = {*row.decided(), *row.settings} & {*column.decided(), *column.settings}
        if twice:
            raise InputError(f"{place}: both row and column decide {min(twice)}")
        if not {"dataset", "method"} <= set(experiment.choose(row, column).decided()):
            raise InputError(f"{place}: lacks a dataset or a method")
