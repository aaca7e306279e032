"""Graphs as tables of text: edges.csv, nodes.csv and, for graph tasks, graphs.csv; edge lists."""

import csv
import io
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vepm.data.build import Parts, ReadOptions
from vepm.data.columns import encode_columns
from vepm.data.edges import kinds_from_text
from vepm.data.labels import masks_from_text
from vepm.errors import InputError

logger = logging.getLogger("vepm")

ENDS = ("source", "target")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?")
_BETWEEN = re.compile(r"[\s,;]+")
_IN_DICT = re.compile(r"\{.*'weight': *([^,}]+).*\}|\{\}")


@dataclass(frozen=True)
class Table:
    """Cells by column, and what to call rows (their line or name) and columns in messages."""

    source: str
    columns: dict[str, list[Any]]
    lines: Sequence[Any]
    words: tuple[str, str] = ("row", "column")

    def where(self, row: int, column: str) -> str:
        """Names a cell in a message."""
        return f"{self.source}, {self.words[0]} {self.lines[row]}, {self.words[1]} {column}"

    def ids(self) -> dict[str, int]:
        """The row of each id, refusing empty and repeated ones."""
        index: dict[str, int] = {}
        for i, name in enumerate(self.columns["id"]):
            if not name:
                raise InputError(f"{self.where(i, 'id')}: the id is empty; give every row one")
            if index.setdefault(name, i) != i:
                there = f"id '{name}' is already on row {self.lines[index[name]]}"
                raise InputError(f"{self.where(i, 'id')}: {there}; give each id once")
        return index

    def rows_of(self, column: str, index: Mapping[Any, int], listed_in: str) -> list[int]:
        """The index of the id in each cell of a column."""
        for i, cell in enumerate(self.columns[column]):
            if cell not in index:
                what, place = ("graph", "row") if column == "graph" else ("node", "edge")
                missing = f"{what} '{cell}' is not in {listed_in}"
                remedy = f"add it there or correct the {place}"
                raise InputError(f"{self.where(i, column)}: {missing}; {remedy}")
        return [index[cell] for cell in self.columns[column]]


def read_text(path: Path) -> str:
    """The text of a plain file in UTF-8."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is no plain file; save what it gives to one")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; create it or correct the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); save the file as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); correct the path") from None


def read_table(path: Path, required: Sequence[str]) -> Table:
    """Read a file with a header line, which names at least the required columns."""
    text = read_text(path)
    header = next((line for line in text.split("\n") if line.strip()), "")
    delimiter = max((",", ";", "\t"), key=header.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    try:
        numbered = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        at = f"{path}, row {reader.line_num}"
        raise InputError(f"{at}: not CSV ({error}); correct the row") from None
    if not numbered:
        raise InputError(f"{path}: the file is empty; give a header line and rows")
    (_, titles), *body = numbered
    columns = tuple(cell.strip() for cell in titles)
    for name in required:
        if name not in columns:
            raise InputError(
                f"{path}: column '{name}' is missing (found: {', '.join(columns)[:200]}); name it "
                "in the header line, columns separated by commas, semicolons or tabs"
            )
    ((name, count),) = Counter(columns).most_common(1)
    if count > 1:
        raise InputError(f"{path}: column '{name}' is there twice; rename one")
    if not body:
        raise InputError(f"{path}: the file has a header but no rows; add at least one")
    for line, row in body:
        if len(row) != len(columns):
            found = f"{len(row)} cells where the header has {len(columns)}"
            raise InputError(f"{path}, row {line}: {found}; give one cell per column")
    lines, rows = zip(*body, strict=True)
    # Semicolons between cells allow decimal commas.
    comma = _DECIMAL_COMMA.fullmatch if delimiter == ";" else lambda cell: None
    cells = (
        [cell.replace(",", ".") if comma(cell) else cell for cell in map(str.strip, column)]
        for column in zip(*rows, strict=True)
    )
    return Table(str(path), dict(zip(columns, cells, strict=True)), lines)


def read_edge_list(path: Path) -> Table:
    """Read lines of two ids, separated by blanks, commas, semicolons or tabs.

    A header with ``source`` and ``target`` makes it a table. Lines that start with # or % are
    comments. A number after the two ids, alone or as NetworkX writes it (``{'weight': 2}``), is
    the weight; edges without one have weight 1.
    """
    lines = [line.strip() for line in read_text(path).split("\n")]
    numbered = [(i, line) for i, line in enumerate(lines, 1) if line and line[0] not in "#%"]
    if not numbered:
        raise InputError(f"{path}: the file holds no edges; give one per line, as two ids")
    if set(ENDS) <= set(_BETWEEN.split(numbered[0][1])):
        return read_table(path, ENDS)
    rows = [[*_BETWEEN.split(line, maxsplit=2), "", ""][:3] for _, line in numbered]
    for (i, line), row in zip(numbered, rows, strict=True):
        if not all(row[:2]):
            raise InputError(f"{path}, row {i}: '{line[:40]}' is no edge; give two ids")
    sources, targets, rest = (list(cells) for cells in zip(*rows, strict=True))
    columns = {"source": sources, "target": targets}
    if any(rest):
        given = [_IN_DICT.fullmatch(words) for words in rest]
        weights = [(m[1] if m else words) or "1" for m, words in zip(given, rest, strict=True)]
        try:
            columns |= {"weight": [str(float(word)) for word in weights]}
        except ValueError:
            columns |= {"what follows the ids": rest}
        else:
            said = "%s: the number after the ids of an edge is taken for its weight"
            logger.warning(f"{said}; weights=False (--no-weights) ignores it", path)
    return Table(str(path), columns, [i for i, _ in numbered])


def read_edges(path: Path, options: ReadOptions) -> Parts:
    """A file of edges, which has a header if it is CSV: nodes are those it names, unlabelled."""
    table = read_table(path, ENDS) if path.suffix.lower() == ".csv" else read_edge_list(path)
    if options.label or options.features or options.drop:
        raise InputError(
            f"{table.source}: holds edges alone, so there are no node columns to choose; put them "
            "into nodes.csv beside edges.csv"
        )
    pairs = list(zip(*(table.columns[end] for end in ENDS), strict=True))
    names = tuple(dict.fromkeys(end for pair in pairs for end in pair))
    if "" in names:
        row = next(i for i, pair in enumerate(pairs) if not all(pair))
        raise InputError(f"{table.where(row, 'source, target')}: an end is empty; name both ends")
    index = {name: i for i, name in enumerate(names)}
    fields = edge_fields(table, index, table.source, options)
    return Parts(name=path.stem, source=table.source, node_names=names, **fields)


def read_folder(path: Path, options: ReadOptions) -> Parts:
    """A folder with ``edges.csv`` and perhaps ``nodes.csv`` and ``graphs.csv``."""
    name, label = path.resolve().name, options.label or "label"
    of_graphs = (path / "graphs.csv").exists()
    if not of_graphs and not (path / "nodes.csv").exists():
        return replace(read_edges(path / "edges.csv", options), name=name)
    labelled = read_table(path / "graphs.csv", ("id", label)) if of_graphs else None
    nodes = read_table(path / "nodes.csv", ("id", "graph") if of_graphs else ("id",))
    edges = read_table(path / "edges.csv", ENDS)
    for column in {"label", "split"} & nodes.columns.keys() if labelled else ():
        raise InputError(
            f"{nodes.source}: column '{column}' belongs in graphs.csv in a graph task; "
            "rename it to use it as a feature"
        )
    index = nodes.ids()
    other = {"id", "graph"} if labelled else {"id", label, "split"}
    parts = Parts(
        name=name,
        source=str(path),
        node_names=tuple(index),
        **label_fields(labelled or nodes, options),
        **node_fields(nodes, edges, index, other, options),
    )
    return parts if labelled is None else _grouped(parts, nodes, edges, labelled)


def _grouped(parts: Parts, nodes: Table, edges: Table, graphs: Table) -> Parts:
    """The same, its nodes put graph after graph."""
    index = graphs.ids()
    batch = torch.tensor(nodes.rows_of("graph", index, graphs.source))
    filled = set(batch.tolist())
    for name, i in index.items():
        if i not in filled:
            missing = f"graph '{name}' has no nodes in {nodes.source}"
            raise InputError(f"{graphs.where(i, 'id')}: {missing}; give it some or remove it")
    bridges = (batch[parts.edges[0]] != batch[parts.edges[1]]).nonzero()
    if bridges.numel():
        raise InputError(
            f"{edges.where(int(bridges[0]), 'source, target')}: the edge joins nodes of two "
            "graphs; node ids are shared by all graphs, so name each node once"
        )
    order = batch.argsort(stable=True)
    return replace(
        parts,
        batch=batch[order],
        edges=order.argsort()[parts.edges],
        x=None if parts.x is None else parts.x[order],
        node_names=[(parts.node_names or ())[i] for i in order.tolist()],
        graph_names=tuple(index),
    )


def label_fields(table: Table, options: ReadOptions) -> dict[str, Any]:
    """Labels and masks of what a table lists."""
    if options.label is not None and options.label not in table.columns:
        found = f"found: {', '.join(table.columns)[:200]}"
        missing = f"there is no {table.words[1]} '{options.label}' with labels"
        raise InputError(f"{table.source}: {missing} ({found})")
    label = options.label or "label"
    cells, split = table.columns.get(label), table.columns.get("split")
    return {
        "labels": None if cells is None else np.array(cells, dtype=object),
        "label_at": lambda i: table.where(i, label),
        "masks": masks_from_text(split, lambda i: table.where(i, "split")) if split else {},
    }


def node_fields(
    nodes: Table,
    edges: Table,
    index: Mapping[Any, int],
    other: set[str],
    options: ReadOptions,
    *,
    text: bool = True,
) -> dict[str, Any]:
    """Features of nodes, and their edges; ``other`` columns of the nodes are no features."""
    columns = {name: cells for name, cells in nodes.columns.items() if name not in other}
    x, names, unused = encode_columns(columns, nodes.where, options, nodes.source, text=text)
    fields = edge_fields(edges, index, nodes.source, options)
    return fields | {"x": x, "feature_names": names, "unused": [*fields["unused"], *unused]}


def edge_fields(
    edges: Table, index: Mapping[Any, int], listed_in: str, options: ReadOptions
) -> dict[str, Any]:
    """Edges as indices, their weights and kinds, and the names of other columns."""
    kinds, weights = edges.columns.get("kind"), edges.columns.get("weight")
    others = [name for name in edges.columns if name not in (*ENDS, "kind", "weight")]
    return {
        "edges": torch.tensor([edges.rows_of(end, index, listed_in) for end in ENDS]).long(),
        "num_nodes": len(index),
        "weights": _weights(edges) if options.weights and weights else None,
        "weight_at": lambda i: edges.where(i, "weight"),
        "kinds": None if kinds is None else kinds_from_text(kinds, edges.source),
        "one_way": True,
        "unused": [f"edge {edges.words[1]} '{name}'" for name in others],
    }


def _weights(edges: Table) -> Tensor:
    numbers = []
    for i, cell in enumerate(edges.columns["weight"]):
        try:
            numbers.append(float(cell))
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{edges.where(i, 'weight')}: '{str(cell)[:40]}' is no number; give every edge a "
                "weight, or ignore all of them with weights=False (--no-weights)"
            ) from None
    return torch.tensor(numbers, dtype=torch.float64)
