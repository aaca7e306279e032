"""Graphs as tables of text: edges.csv, nodes.csv and, for graph tasks, graphs.csv; edge lists."""

import csv
import io
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vepm.data.build import Parts
from vepm.data.canonical import kinds_from_text
from vepm.data.columns import ReadOptions, Table
from vepm.data.labels import is_number
from vepm.errors import InputError

logger = logging.getLogger("vepm")

ENDS = ("source", "target")
_OF_EDGES = (*ENDS, "weight", "kind")
_BETWEEN = re.compile(r"[\s,;]+")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?")
_IN_DICT = re.compile(r"^(?:\{.*'weight': *([^,}]+).*\}|\{\})$")


def read_text(path: Path) -> str:
    """The text of a regular file in UTF-8."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is not a regular file; save its content to one")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); save the file as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: {str(error.strerror).lower()}; correct the path") from None


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
    if len(numbered) < 2:
        found = "has a header but no rows" if numbered else "is empty"
        raise InputError(f"{path}: the file {found}; give a header line and rows")
    columns = [cell.strip() for cell in numbered[0][1]]
    times = Counter(columns)
    for name in (*required, *columns):
        if times[name] != 1:
            how = "repeated" if name in columns else "missing"
            found = f"column '{name}' is {how} (found: {', '.join(columns)[:200]})"
            remedy = "name each once in the header, separated by commas, semicolons or tabs"
            raise InputError(f"{path}: {found}; {remedy}")
    for line, row in numbered:
        if len(row) != len(columns):
            found = f"{len(row)} cells where the header has {len(columns)}"
            raise InputError(f"{path}, row {line}: {found}; give one cell per column")
    lines, rows = zip(*numbered[1:], strict=True)
    # Semicolons between cells allow decimal commas.
    comma = _DECIMAL_COMMA.fullmatch if delimiter == ";" else lambda cell: None
    cells = (
        [cell.replace(",", ".") if comma(cell) else cell for cell in map(str.strip, column)]
        for column in zip(*rows, strict=True)
    )
    return Table(str(path), dict(zip(columns, cells, strict=True)), lines)


def read_edge_list(path: Path) -> Table:
    """Read lines of two ids, or a table if there is a header; # and % start comments.

    A number after the two ids, alone or as NetworkX writes it (``{'weight': 2}``), is the weight;
    edges without one have weight 1.
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
            raise InputError(f"{path}, row {i}: '{line[:40]}' is not an edge; give two ids")
    sources, targets, rest = (list(cells) for cells in zip(*rows, strict=True))
    columns = {"source": sources, "target": targets}
    weights = [_IN_DICT.sub(r"\1", words) or "1" for words in rest]
    if any(rest) and all(map(is_number, weights)):
        columns["weight"] = weights
        said = "%s: the number after the ids of an edge is taken for its weight"
        logger.warning(f"{said}; weights=False (--no-weights) ignores it", path)
    elif any(rest):
        columns["what follows the ids"] = rest
    return Table(str(path), columns, [i for i, _ in numbered])


def read_edges(path: Path, options: ReadOptions, name: str = "") -> Parts:
    """A file of edges, which has a header if it is CSV: nodes are those it names, unlabelled."""
    edges = read_table(path, ENDS) if path.suffix.lower() == ".csv" else read_edge_list(path)
    pairs = list(zip(*(edges.columns[end] for end in ENDS), strict=True))
    names = list(dict.fromkeys(end for pair in pairs for end in pair))
    if "" in names:
        row = list(map(all, pairs)).index(False)
        raise InputError(f"{edges.where(row)}: an end is empty; name both ends")
    nodes = Table(str(path), {"id": names}, names, ("node", "column"))
    return table_parts(name or path.stem, str(path), nodes, edges, nodes.ids(), options)


def read_folder(path: Path, options: ReadOptions) -> Parts:
    """A folder with ``edges.csv`` and optionally ``nodes.csv`` and ``graphs.csv``."""
    name, of_graphs = path.resolve().name, (path / "graphs.csv").exists()
    if not of_graphs and not (path / "nodes.csv").exists():
        return read_edges(path / "edges.csv", options, name)
    nodes = read_table(path / "nodes.csv", ("id", "graph") if of_graphs else ("id",))
    edges = read_table(path / "edges.csv", ENDS)
    if not of_graphs:
        return table_parts(name, str(path), nodes, edges, nodes.ids(), options)
    for column in {"label", "split"} & nodes.columns.keys():
        wrong = f"column '{column}' belongs in graphs.csv in a graph task"
        raise InputError(f"{nodes.source}: {wrong}; rename it to use it as a feature")
    graphs = read_table(path / "graphs.csv", ("id", options.label or "label"))
    owner = nodes.rows_of("graph", graphs.ids(), graphs.source)
    order = sorted(range(len(owner)), key=owner.__getitem__)
    columns = {name: [cells[i] for i in order] for name, cells in nodes.columns.items()}
    nodes = replace(nodes, columns=columns, lines=[nodes.lines[i] for i in order])
    more: Any = {"graph_names": graphs.columns["id"], "batch": torch.tensor(sorted(owner))}
    return table_parts(name, str(path), nodes, edges, nodes.ids(), options, graphs=graphs, **more)


def table_parts(
    name: str,
    source: str,
    nodes: Table,
    edges: Table,
    index: Mapping[Any, int],
    options: ReadOptions,
    *,
    graphs: Table | None = None,
    text: bool = True,
    **more: Any,
) -> Parts:
    """The content of tables of nodes (their rows are in ``index``), edges and perhaps graphs."""
    labelled, label = graphs or nodes, options.label or "label"
    if options.label is not None and label not in labelled.columns:
        missing = f"{labelled.source}: there is no {labelled.words[1]} '{label}' with labels"
        raise InputError(f"{missing} (found: {', '.join(labelled.columns)[:200]})")
    labels = labelled.columns.get(label)
    other = {"id", "graph"} if graphs else {"id", label, "split"}
    columns = {key: cells for key, cells in nodes.columns.items() if key not in other}
    x, names, unused = replace(nodes, columns=columns).features(options, text=text)
    kinds, numbers = edges.columns.get("kind"), []
    for i, cell in enumerate(edges.columns.get("weight", ()) if options.weights else ()):
        try:
            numbers.append(float(cell))
        except (TypeError, ValueError, OverflowError):
            wrong = f"{edges.where(i, 'weight')}: '{str(cell)[:40]}' is not a number"
            remedy = "give every edge a weight, or ignore all with weights=False (--no-weights)"
            raise InputError(f"{wrong}; {remedy}") from None
    left = [f"edge {edges.words[1]} '{key}'" for key in edges.columns if key not in _OF_EDGES]
    ends = torch.tensor([edges.rows_of(end, index, nodes.source) for end in ENDS])
    return Parts(
        name=name,
        source=source,
        edges=ends.long(),
        edge_at=edges.where,
        weights=torch.tensor(numbers, dtype=torch.float64) if numbers else None,
        kinds=None if kinds is None else kinds_from_text(kinds, edges.source),
        num_nodes=len(index),
        node_names=[str(name) for name in nodes.columns["id"]],
        x=x,
        feature_names=names,
        labels=None if labels is None else np.array(labels, dtype=object),
        label_at=lambda i: labelled.where(i, label),
        masks=labelled.masks(),
        num_graphs=len(graphs.lines) if graphs else 1,
        unused=[*left, *unused],
        **{"one_way": True} | more,
    )
