"""Columns of a table as features: which are used, and how."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vepm.data.build import ReadOptions
from vepm.data.dataset import listed_names
from vepm.data.labels import is_number
from vepm.errors import InputError

MOST_CATEGORIES = 1000
_MOST_CELLS = 10**8
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}([./])\d{1,2}\2\d{2,4}( .*)?")

Where = Callable[[int, str], str]
Features = tuple[Tensor | None, tuple[str, ...] | None, list[str]]


def encode_columns(
    columns: Mapping[str, Sequence[Any]],
    where: Where,
    options: ReadOptions,
    source: str,
    *,
    constants: bool = False,
    text: bool = True,
) -> Features:
    """Columns of a table as features, their names, and in words which are not used.

    Numbers are used as they are. Text becomes one column of zeros and ones per value, called
    ``column=value``; an empty cell is of no value. Dates, constants and text that differs in every
    row are left out, unless they are asked for or a fitted model knows them. Columns of one number
    are kept if ``constants``, those of text that nobody asked for used if ``text``.
    """
    found: dict[str, NDArray[Any]] = {}
    numbers: dict[str, NDArray[Any]] = {}
    unused: list[str] = []
    known = dict.fromkeys(options.feature_names or ())
    categories: dict[str, list[str]] = {}
    for column, equals, value in (name.partition("=") for name in known):
        if equals:
            categories.setdefault(column, []).append(value)
    for name in _chosen(columns, options, source):
        values = None
        if name in known or name not in categories:
            values = _as_numbers(name, columns[name], where, name in known)
            numbers |= values or {}
        if values is None:
            values, reason = _one_hot(name, columns[name], categories.get(name), options, text)
            unused += [f"column '{name}' ({reason})"] if reason else []
        found |= values
    zeros = sum(int((column == 0).sum()) for column in numbers.values())
    # A bag of words is mostly zeros, and some of its words may be in no row.
    if not constants and options.features is None and 2 * zeros <= sum(map(len, numbers.values())):
        for name, number in numbers.items():
            if name not in known and (number == number[0]).all():
                del found[name]
                unused.append(f"column '{name}' (constant)")
    if not found:
        return None, None, unused
    table = np.stack(list(found.values()), axis=1)
    return torch.from_numpy(table).float(), tuple(found), unused


def _chosen(columns: Mapping[str, Any], options: ReadOptions, source: str) -> list[str]:
    for name in (*(options.features or ()), *options.drop):
        if name not in columns:
            raise InputError(
                f"{source}: there is no column '{name}' to use or drop; there are "
                f"{listed_names(list(columns)) or 'none'}"
            )
    names = columns if options.features is None else options.features
    return [name for name in dict.fromkeys(names) if name not in options.drop]


def _as_numbers(
    name: str, cells: Sequence[Any], where: Where, expected: bool
) -> dict[str, NDArray[Any]] | None:
    """A column of numbers, or one for each entry of vectors; None if it holds something else."""
    try:
        values = np.array(cells, dtype=np.float64).reshape(len(cells), -1)
        if not _fits(values):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        filled = [cell for cell in cells if not _is_blank(cell)]
        if not expected and sum(map(is_number, filled)) <= len(filled) / 2:
            return None
        # A mistyped number does not turn a column into text.
        _refuse_cell(name, cells, where)
    names = [name] if values.shape[1] == 1 else [f"{name}_{i}" for i in range(values.shape[1])]
    return dict(zip(names, values.T, strict=True))


def _fits(values: NDArray[np.float64]) -> bool:
    return bool((np.abs(values) <= np.finfo(np.float32).max).all())


def _refuse_cell(name: str, cells: Sequence[Any], where: Where) -> NoReturn:
    width = np.size(cells[0])
    for i, cell in enumerate(cells):
        wrong = None
        if _is_blank(cell):
            wrong = "the cell is empty; give every row a number"
        elif not is_number(cell):
            shown = f"'{cell[:40]}'" if isinstance(cell, str) else f"a {type(cell).__name__}"
            wrong = f"{shown} is not a number; correct it"
        elif np.size(cell) != width:
            found = f"{np.size(cell)} numbers, not {width} as in the first row"
            wrong = f"{found}; give every row the same"
        elif not _fits(np.array(cell, dtype=np.float64)):
            wrong = f"'{str(cell)[:40]}' is not finite (as float32); give a finite number"
        if wrong:
            raise InputError(f"{where(i, name)}: {wrong}")
    raise InputError(f"{where(0, name)}: the column holds no numbers; drop it")


def _one_hot(
    name: str, cells: Sequence[Any], known: list[str] | None, options: ReadOptions, text: bool
) -> tuple[dict[str, NDArray[Any]], str]:
    """A column for each value of a column of text, or why it is not used."""
    if not all(_is_blank(cell) or isinstance(cell, str | date) for cell in cells):
        return {}, "neither numbers nor text"
    texts = ["" if _is_blank(cell) else str(cell).strip() for cell in cells]
    filled = list(filter(None, texts))
    values = [*(known or ()), *sorted(set(filled) - set(known or ()))]
    if known is None and options.features is None:
        if not filled:
            return {}, "empty"
        if all(map(_DATE.fullmatch, filled)):
            return {}, "dates"
        if len(values) == 1 and len(filled) == len(texts):
            return {}, "constant"
        if len(values) == len(filled):
            return {}, "different in every row"
        if not text:
            return {}, "text: name it in features to use it, or as the label"
    if len(values) > MOST_CATEGORIES or len(values) * len(texts) > _MOST_CELLS:
        return {}, f"{len(values)} different values"
    array = np.array(texts, dtype=object)
    return {f"{name}={value}": (array == value).astype(np.float64) for value in values}, ""


def _is_blank(cell: Any) -> bool:
    if isinstance(cell, str):
        return not cell.strip()
    return cell is None or (isinstance(cell, float) and math.isnan(cell))
