"""Experiments in and out of their TOML files; an unknown key is an error."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from vepm.errors import InputError
from vepm.files import read_toml
from vepm.paper.specification import CHOICES, Choice, Experiment, Line, Printed, check

FOLDER = Path(__file__).parent
FIGURES = ("curves", "subgraph", "adjacency", "tsne", "confusion")
DASH = "-"

_HEAD = {"title", "description", "figure", "notes", "rows", "columns"}


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


def read_experiment(path: Path) -> Experiment:
    """The experiment in a TOML file, named after the file.

    Raises:
        InputError: if the file is no TOML, has an unknown key, or leaves something open.
    """
    values = read_toml(path)
    where = path.stem
    if not re.fullmatch(r"\w[\w.-]*", where):
        raise InputError(f"{path}: an experiment is named after its file; use letters and digits")
    _known(where, values, _HEAD | CHOICES)
    missing = sorted({"title", "description", "rows", "columns"} - set(values))
    if missing:
        raise InputError(f"{where}: lacks {', '.join(missing)}")
    _texts(where, [values["title"], values["description"], *_list(where, values, "notes")])
    figure = values.get("figure")
    if figure not in (None, *FIGURES):
        raise InputError(f"{where}: there is no figure {figure!r}; use {', '.join(FIGURES)}")
    return check(
        Experiment(
            name=where,
            title=values["title"],
            description=values["description"],
            rows=tuple(_row(where, row) for row in _list(where, values, "rows")),
            columns=tuple(_column(where, column) for column in _list(where, values, "columns")),
            choice=_choice(where, values),
            figure=figure,
            notes=tuple(values.get("notes", ())),
        )
    )


def _order(path: Path) -> tuple[int, int, str]:
    kind, _, number = path.stem.partition("-")
    kinds = ("table", "figure")
    place = kinds.index(kind) if kind in kinds else len(kinds)
    digits = re.match(r"\d+", number)
    return place, int(digits[0]) if digits else 0, path.stem


def _known(where: str, values: Any, allowed: set[str] | frozenset[str]) -> None:
    if not isinstance(values, dict):
        raise InputError(f"{where}: {values!r} is no table of keys and values")
    unknown = sorted(set(values) - allowed)
    if unknown:
        raise InputError(f"{where}: unknown key {unknown[0]!r}; use {', '.join(sorted(allowed))}")


def _list(where: str, values: dict[str, Any], key: str) -> list[Any]:
    found = values.get(key, [])
    if not isinstance(found, list):
        raise InputError(f"{where}: {key} must be a list")
    return found


def _texts(where: str, values: list[Any]) -> None:
    for value in values:
        if not isinstance(value, str):
            raise InputError(f"{where}: {value!r} stands where text belongs")


def _choice(where: str, values: dict[str, Any]) -> Choice:
    chosen = {name: values[name] for name in CHOICES & set(values)}
    kinds: dict[str, Any] = {"keep": (int, float), "seeds": int, "splits": int, "settings": dict}
    for name, value in chosen.items():
        if isinstance(value, bool) or not isinstance(value, kinds.get(name, str)):
            raise InputError(f"{where}: {name} cannot be {value!r}")
    return Choice(**chosen)


def _row(where: str, values: Any) -> Line:
    _known(f"{where}, row", values, {"name", "paper", "yes"} | CHOICES)
    if "name" not in values:
        raise InputError(f"{where}: a row has no name")
    _texts(where, [values["name"]])
    place = f"{where}, {values['name']}"
    paper, yes = values.get("paper", {}), values.get("yes")
    if not isinstance(paper, dict):
        raise InputError(f"{place}: paper must be a table of numbers by column")
    if yes is not None and not _is_pair(yes):
        raise InputError(f"{place}: yes must be two numbers, the least and the most")
    return Line(
        name=values["name"],
        choice=_choice(place, values),
        paper={column: _printed(place, value) for column, value in paper.items()},
        yes=None if yes is None else (float(yes[0]), float(yes[1])),
    )


def _column(where: str, values: Any) -> Line:
    if isinstance(values, str):
        return Line(values, Choice(dataset=values))
    _known(f"{where}, column", values, {"name"} | CHOICES)
    if "name" not in values:
        raise InputError(f"{where}: a column has no name")
    _texts(where, [values["name"]])
    return Line(values["name"], _choice(f"{where}, {values['name']}", values))


def _printed(where: str, value: Any) -> Printed:
    if value == DASH:
        return Printed()
    if isinstance(value, list):
        if not _is_pair(value):
            raise InputError(f"{where}: {value} is not a mean and a spread")
        return Printed(float(value[0]), float(value[1]))
    if not isinstance(value, str | int | float):
        raise InputError(f"{where}: {value!r} is nothing that a paper prints")
    return Printed(value if isinstance(value, str) else float(value))


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(item, int | float) for item in value)
    )
