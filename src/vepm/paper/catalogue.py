"""Reading experiments from TOML files."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from vepm.errors import InputError
from vepm.files import read_toml
from vepm.paper.experiments import Experiment, Line, Printed, slug
from vepm.schema import read

FOLDER = Path(__file__).parent
DASH = "-"


@cache
def catalogue(folder: Path = FOLDER) -> dict[str, Experiment]:
    """Every experiment of a folder by name, tables first, in the order of their numbers.

    Example:
        >>> from vepm.paper import catalogue
        >>> list(catalogue())[:2]
        ['table-1', 'table-2']
    """
    paths = sorted(folder.glob("*.toml"), key=_order)
    if not paths:
        raise InputError(f"{folder}: has no experiments (*.toml)")
    return {path.stem: read_experiment(path) for path in paths}


def _order(path: Path) -> tuple[int, int, str]:
    kind, _, number = path.stem.partition("-")
    kinds = ("table", "figure")
    digits = re.match(r"\d+", number)
    place = kinds.index(kind) if kind in kinds else len(kinds)
    return place, int(digits[0]) if digits else 0, path.stem


def read_experiment(path: Path) -> Experiment:
    """The experiment in a TOML file, named after the file.

    Raises:
        InputError: if the file is no TOML, has an unknown key, or leaves something open.
    """
    values, where = read_toml(path), path.stem
    if not re.fullmatch(r"\w[\w.-]*", where) or "name" in values:
        raise InputError(f"{path}: an experiment is named after its file; use letters and digits")
    for key in {"rows", "columns"} & set(values):
        if not isinstance(values[key], list):
            raise InputError(f"{where}: {key} must be a list")
        values[key] = tuple(_line(where, key.removesuffix("s"), line) for line in values[key])
    experiment = read(Experiment, {"name": where} | values, where)
    if not all(isinstance(note, str) for note in experiment.notes):
        raise InputError(f"{where}: notes must be text")
    _check(experiment)
    return experiment


def _line(where: str, kind: str, values: Any) -> Line:
    if isinstance(values, str):
        return Line(name=values, dataset=values)
    line = read(Line, values, f"{where}, {kind}")
    where = f"{where}, {line.name}"
    if kind == "column" and (line.paper or line.yes):
        raise InputError(f"{where}: paper and yes belong to rows")
    if line.yes is not None and not _is_pair(line.yes):
        raise InputError(f"{where}: yes must be two numbers, the least and the most")
    paper = {column: _printed(where, value) for column, value in line.paper.items()}
    return replace(line, paper=paper)


def _printed(where: str, value: Any) -> Printed:
    if value == DASH:
        return Printed()
    if isinstance(value, list):
        if not _is_pair(value):
            raise InputError(f"{where}: {value} is not a mean and a spread")
        return Printed(float(value[0]), float(value[1]))
    if not isinstance(value, str | int | float):
        raise InputError(f"{where}: {value!r} is neither a number nor text")
    return Printed(value if isinstance(value, str) else float(value))


def _is_pair(values: list[Any]) -> bool:
    return len(values) == 2 and all(isinstance(value, int | float) for value in values)


def _check(experiment: Experiment) -> None:
    """Refuse an experiment whose lines contradict each other or leave something open."""
    where, columns = experiment.name, {column.name for column in experiment.columns}
    for lines in (experiment.rows, experiment.columns):
        names = [slug(line.name) for line in lines]
        if not all(names) or not names or len(set(names)) != len(names):
            raise InputError(f"{where}: needs rows and columns, each of a name of its own")
    for row in experiment.rows:
        if row.paper and set(row.paper) != columns:
            wrong = ", ".join(sorted(columns ^ set(row.paper)))
            raise InputError(f'{where}, {row.name}: paper has other columns: {wrong} (write "-")')
        for column in experiment.columns:
            place = f"{where}, {row.name}, {column.name}"
            twice = {*row.decided(), *row.settings} & {*column.decided(), *column.settings}
            if twice:
                raise InputError(f"{place}: both row and column decide {min(twice)}")
            if not {"dataset", "method"} <= set(experiment.choose(row, column).decided()):
                raise InputError(f"{place}: lacks a dataset or a method")
