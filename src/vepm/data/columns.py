"""Tables of cells, and their columns as features: which are used, and how."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vepm.data.canonical import feature_table
from vepm.data.dataset import listed_names
from vepm.data.labels import is_number
from vepm.errors import InputError

MOST_CATEGORIES = 1000
_MOST_CELLS = 10**8
_SPLIT = ("train", "val", "test")
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}([./])\d{1,2}\2\d{2,4}( .*)?")

Columns = dict[str, NDArray[Any]]
# A table, if there are features, the names of its columns, and in words what is not used.
Features = tuple[Tensor | None, tuple[str, ...] | None, list[str]]


@dataclass(frozen=True)
class ReadOptions:
    """What a user, or a fitted model, asks of a reader: the arguments of :func:`vepm.data.read`."""

    label: str | None = None
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()
    class_names: Sequence[str] | None = None
    feature_names: Sequence[str] | None = None
    strict: bool = False
    weights: bool = True
    directed: bool = False

    def chosen(self, columns: Mapping[str, Any], source: str) -> list[str]:
        """The names of the columns to use as features, among those that exist."""
        for name in (*(self.features or ()), *self.drop):
            if name not in columns:
                there = f"there are {listed_names(list(columns)) or 'none with a name'}"
                raise InputError(f"{source}: there is no column '{name}' to use or drop; {there}")
        names = columns if self.features is None else self.features
        return [name for name in dict.fromkeys(names) if name not in self.drop]


@dataclass(frozen=True)
class Table:
    """Cells by column, and what to call rows (their line or name) and columns in messages."""

    source: str
    columns: dict[str, list[Any]]
    lines: Sequence[Any]
    words: tuple[str, str] = ("row", "column")

    def where(self, row: int, column: str = "") -> str:
        """Names a cell, or a row, in a message."""
        place = f"{self.source}, {self.words[0]} {self.lines[row]}"
        return f"{place}, {self.words[1]} {column}" if column else place

    def ids(self) -> dict[str, int]:
        """The row of each id, refusing empty and repeated ones."""
        index: dict[str, int] = {}
        for i, name in enumerate(self.columns["id"]):
            if not name or index.setdefault(name, i) != i:
                there = f"id '{name}' is already on row {self.lines[index[name]]}" if name else ""
                wrong = f"{there or 'the id is empty'}; give every row an id of its own"
                raise InputError(f"{self.where(i, 'id')}: {wrong}")
        return index

    def rows_of(self, column: str, index: Mapping[Any, int], listed_in: str) -> list[int]:
        """The index of the id in each cell of a column."""
        for i, cell in enumerate(self.columns[column]):
            if cell not in index:
                what = "graph" if column == "graph" else "node"
                missing = f"{what} '{cell}' is not in {listed_in}; add it there or correct the id"
                raise InputError(f"{self.where(i, column)}: {missing}")
        return [index[cell] for cell in self.columns[column]]

    def masks(self) -> dict[str, Tensor]:
        """Masks by name from column ``split``, if there is one; an empty cell is in none."""
        cells = self.columns.get("split")
        if cells is None:
            return {}
        for i, cell in enumerate(cells):
            if cell and cell not in _SPLIT:
                known = f"none of {', '.join(_SPLIT)}; use one of these or leave it empty"
                raise InputError(f"{self.where(i, 'split')}: '{cell}' is {known}")
        return {f"{part}_mask": torch.tensor([cell == part for cell in cells]) for part in _SPLIT}

    def features(
        self, options: ReadOptions, *, constants: bool = False, text: bool = True
    ) -> Features:
        """The columns as features.

        Text becomes a column of zeros and ones per value, called ``column=value``. Dates, constants
        (unless ``constants``), text that differs in every row (or any, unless ``text``) are left
        out, unless they are asked for or a fitted model knows them.
        """
        found, numbers, unused = Columns(), Columns(), list[str]()
        known = dict.fromkeys(options.feature_names or ())
        categories: dict[str, list[str]] = {}
        for column, equals, value in (name.partition("=") for name in known):
            if equals:
                categories.setdefault(column, []).append(value)
        for name in options.chosen(self.columns, self.source):
            values, reason = None, ""
            if name in known or name not in categories:
                values = self._numbers(name, name in known)
                numbers |= values or {}
            if values is None:
                values, reason = self._one_hot(name, categories.get(name), options, text)
            found |= values
            unused += [f"column '{name}' ({reason})"] if reason else []
        zeros = sum(int((column == 0).sum()) for column in numbers.values())
        size = sum(map(len, numbers.values()))
        # Bags of words are mostly zeros, and some words may occur in no row.
        if not constants and options.features is None and 2 * zeros <= size:
            for name, number in numbers.items():
                if name not in known and (number == number[0]).all():
                    del found[name]
                    unused.append(f"column '{name}' (constant)")
        if not found:
            return None, None, unused
        return torch.from_numpy(np.stack([*found.values()], axis=1)).float(), tuple(found), unused

    def _numbers(self, name: str, expected: bool) -> Columns | None:
        """A column of numbers, or one for each entry of vectors; None if it holds others."""
        cells = self.columns[name]
        try:
            values = np.array(cells, dtype=np.float64).reshape(len(cells), -1)
            if not _fits(values):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            filled = [cell for cell in cells if not _is_blank(cell)]
            if not expected and sum(map(is_number, filled)) <= len(filled) / 2:
                return None
            # A mistyped number does not turn a column into text.
            self._refuse_cell(name)
        names = [name] if values.shape[1] == 1 else [f"{name}_{i}" for i in range(values.shape[1])]
        return dict(zip(names, values.T, strict=True))

    def _refuse_cell(self, name: str) -> NoReturn:
        cells = self.columns[name]
        for i, cell in enumerate(cells):
            if _is_blank(cell):
                wrong = "the cell is empty; give every row a number"
            elif not is_number(cell):
                shown = f"'{cell[:40]}'" if isinstance(cell, str) else f"a {type(cell).__name__}"
                wrong = f"{shown} is not a number; correct it"
            elif np.size(cell) != np.size(cells[0]):
                wrong = f"{np.size(cell)} numbers, not {np.size(cells[0])} as in the first row"
            elif not _fits(np.array(cell, dtype=np.float64)):
                wrong = f"'{str(cell)[:40]}' is not finite (as float32); give a finite number"
            else:
                continue
            raise InputError(f"{self.where(i, name)}: {wrong}")
        raise InputError(f"{self.where(0, name)}: the column holds no numbers; drop it")

    def _one_hot(
        self, name: str, known: list[str] | None, options: ReadOptions, text: bool
    ) -> tuple[Columns, str]:
        """A column for each value of a column of text, or why it is not used."""
        cells = self.columns[name]
        if not all(_is_blank(cell) or isinstance(cell, str) for cell in cells):
            return {}, "neither numbers nor text"
        texts = ["" if _is_blank(cell) else cell.strip() for cell in cells]
        filled = list(filter(None, texts))
        values = [*(known or ()), *sorted(set(filled) - set(known or ()))]
        asked = known is not None or options.features is not None
        too_many = len(values) > MOST_CATEGORIES or len(values) * len(texts) > _MOST_CELLS
        reasons = {
            "empty": not asked and not filled,
            "dates": not asked and all(map(_DATE.fullmatch, filled)),
            "constant": not asked and len(values) == 1 and len(filled) == len(texts),
            "different in every row": not asked and len(values) == len(filled),
            "text: name it in features to use it, or as the label": not asked and not text,
            f"{len(values)} different values": too_many,
        }
        if any(reasons.values()):
            return {}, next(reason for reason, applies in reasons.items() if applies)
        array = np.array(texts, dtype=object)
        return {f"{name}={value}": (array == value).astype(np.float64) for value in values}, ""


def features_of(x: Any, num_nodes: int, options: ReadOptions, source: str) -> Features:
    """Features from an array, or from a data frame of any library, whose columns have names."""
    names = list(getattr(x, "columns", ()))
    if not any(isinstance(name, str) for name in names):
        options.chosen({}, source)
        return None if x is None else feature_table(x, num_nodes, source), None, []
    if len({name for name in names if isinstance(name, str)}) < len(names):
        raise InputError(f"{source}: columns must have names of text, each its own; rename them")
    cells = np.asarray(x)
    if len(cells) != num_nodes:
        needed = f"{num_nodes} are needed, one per node"
        raise InputError(f"{source}: features have {len(cells)} rows; {needed}")
    columns = dict(zip(names, cells.T.tolist(), strict=True))
    table = Table(source, columns, range(num_nodes), ("node", "column"))
    return table.features(options, constants=True)


def _fits(values: NDArray[np.float64]) -> bool:
    return bool((np.abs(values) <= np.finfo(np.float32).max).all())


def _is_blank(cell: Any) -> bool:
    empty = isinstance(cell, str) and not cell.strip()
    return empty or cell is None or (isinstance(cell, float) and math.isnan(cell))
