"""Reading experiments from TOML files; an unknown key is an error."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from vepm.errors import InputError
from vepm.files import read_toml
from vepm.paper.experiments import CHOICES, METRICS, Choice, Experiment, Line, Printed, slug

FOLDER = Path(__file__).parent
FIGURES = ("curves", "subgraph", "adjacency", "tsne", "confusion")
DASH = "-"
MOST_RUNS = 10_000
"""Seeds or splits of one square; more is a mistake in the file."""


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
    if not re.fullmatch(r"\w[\w.-]*", where):
        raise InputError(f"{path}: an experiment is named after its file; use letters and digits")
    own = {"title", "description", "figure", "notes", "rows", "columns"}
    _check_keys(where, values, own | CHOICES)
    missing = sorted({"title", "description", "rows", "columns"} - set(values))
    if missing:
        raise InputError(f"{where}: lacks {', '.join(missing)}")
    rows, columns, notes = (_list(where, values, key) for key in ("rows", "columns", "notes"))
    for text in (values["title"], values["description"], *notes):
        _check_text(where, text)
    figure = values.get("figure")
    if figure not in (None, *FIGURES):
        raise InputError(f"{where}: there is no figure {figure!r}; use {', '.join(FIGURES)}")
    experiment = Experiment(
        name=where,
        title=values["title"],
        description=values["description"],
        rows=tuple(_line(where, "row", row, {"paper", "yes"}) for row in rows),
        columns=tuple(
            Line(column, Choice(dataset=column))
            if isinstance(column, str)
            else _line(where, "column", column, set())
            for column in columns
        ),
        choice=_choice(where, values),
        figure=figure,
        notes=tuple(notes),
    )
    _check(experiment)
    return experiment


def _check_keys(where: str, values: Any, allowed: set[str] | frozenset[str]) -> None:
    if not isinstance(values, dict):
        raise InputError(f"{where}: {values!r} is not a table of keys and values")
    unknown = sorted(set(values) - allowed)
    if unknown:
        raise InputError(f"{where}: unknown key {unknown[0]!r}; use {', '.join(sorted(allowed))}")


def _list(where: str, values: dict[str, Any], key: str) -> list[Any]:
    found = values.get(key, [])
    if not isinstance(found, list):
        raise InputError(f"{where}: {key} must be a list")
    return found


def _check_text(where: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InputError(f"{where}: {value!r} must be text")


def _choice(where: str, values: dict[str, Any]) -> Choice:
    chosen = {name: values[name] for name in CHOICES & set(values)}
    kinds: dict[str, Any] = {"keep": (int, float), "seeds": int, "splits": int, "settings": dict}
    for name, value in chosen.items():
        if isinstance(value, bool) or not isinstance(value, kinds.get(name, str)):
            raise InputError(f"{where}: {name} cannot be {value!r}")
        if name in ("seeds", "splits") and not 1 <= value <= MOST_RUNS:
            raise InputError(f"{where}: {name} must be between 1 and {MOST_RUNS}, not {value}")
    return Choice(**chosen)


def _line(where: str, kind: str, values: Any, more: set[str]) -> Line:
    _check_keys(f"{where}, {kind}", values, {"name"} | more | CHOICES)
    if "name" not in values:
        raise InputError(f"{where}: a {kind} has no name")
    _check_text(where, values["name"])
    where = f"{where}, {values['name']}"
    paper, yes = values.get("paper", {}), values.get("yes")
    if not isinstance(paper, dict):
        raise InputError(f"{where}: paper must be a table of numbers by column")
    if yes is not None and not _is_pair(yes):
        raise InputError(f"{where}: yes must be two numbers, the least and the most")
    return Line(
        name=values["name"],
        choice=_choice(where, values),
        paper={column: _printed(where, value) for column, value in paper.items()},
        yes=None if yes is None else (float(yes[0]), float(yes[1])),
    )


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


def _is_pair(value: Any) -> bool:
    numbers = isinstance(value, list) and all(isinstance(item, int | float) for item in value)
    return numbers and len(value) == 2


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
            _check_square(f"{where}, {row.name}, {column.name}", experiment, row, column)


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
        raise InputError(f"{where}: says neither which dataset nor which method")
    if chosen.metric not in (None, *METRICS):
        raise InputError(f"{where}: no metric '{chosen.metric}'; there are {', '.join(METRICS)}")
