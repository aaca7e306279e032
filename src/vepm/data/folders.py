"""Graphs as tables: edges.csv, nodes.csv and, for graph tasks, graphs.csv."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vepm.data.build import Parts, ReadOptions
from vepm.data.columns import encode_columns
from vepm.data.edges import encode_kinds
from vepm.data.labels import masks_from_text
from vepm.data.tables import ENDS, WEIGHT, Table, read_edge_list, read_table
from vepm.errors import InputError


def read_folder(path: Path, options: ReadOptions) -> Parts:
    """A folder with ``edges.csv`` and perhaps ``nodes.csv`` and ``graphs.csv``."""
    name = path.resolve().name
    if (path / "graphs.csv").exists():
        return _graphs(path, name, options)
    if (path / "nodes.csv").exists():
        return _nodes(path, name, options)
    return _edges(read_table(path / "edges.csv", ENDS), name, options)


def read_edges(path: Path, options: ReadOptions) -> Parts:
    """A file of edges, which has a header if it is CSV: nodes are those it names, unlabelled."""
    csv = path.suffix.lower() == ".csv"
    return _edges(read_table(path, ENDS) if csv else read_edge_list(path), path.stem, options)


def _edges(table: Table, name: str, options: ReadOptions) -> Parts:
    if options.label or options.features or options.drop:
        raise InputError(
            f"{table.source}: holds edges alone, so there are no node columns to choose; put them "
            "into nodes.csv beside edges.csv"
        )
    pairs = list(zip(*(table.columns[end] for end in ENDS), strict=True))
    index = {node: i for i, node in enumerate(dict.fromkeys(end for pair in pairs for end in pair))}
    if "" in index:
        row = next(i for i, pair in enumerate(pairs) if not all(pair))
        raise InputError(f"{table.where(row, 'source, target')}: an end is empty; name both ends")
    return Parts(
        name=name,
        source=table.source,
        node_names=tuple(index),
        **_edge_fields(table, index, table.source, options),
    )


def _nodes(path: Path, name: str, options: ReadOptions) -> Parts:
    nodes = read_table(path / "nodes.csv", ("id",))
    edges = read_table(path / "edges.csv", ENDS)
    index = nodes.ids()
    label = options.label or "label"
    return Parts(
        name=name,
        source=str(path),
        node_names=tuple(index),
        **label_fields(nodes, options),
        **node_fields(nodes, edges, index, {"id", label, "split"}, options),
    )


def _graphs(path: Path, name: str, options: ReadOptions) -> Parts:
    graphs = read_table(path / "graphs.csv", ("id", options.label or "label"))
    nodes = read_table(path / "nodes.csv", ("id", "graph"))
    edges = read_table(path / "edges.csv", ENDS)
    for column in {"label", "split"} & nodes.columns.keys():
        raise InputError(
            f"{nodes.source}: column '{column}' belongs in graphs.csv in a graph task; "
            "rename it to use it as a feature"
        )
    index = nodes.ids()
    batch, order = _group(nodes, graphs)
    fields = node_fields(nodes, edges, index, {"id", "graph"}, options)
    ends = batch[fields["edges"]]
    bridges = (ends[0] != ends[1]).nonzero()
    if bridges.numel():
        raise InputError(
            f"{edges.where(int(bridges[0]), 'source, target')}: the edge joins nodes of two "
            "graphs; node ids are shared by all graphs, so name each node once"
        )
    fields["edges"] = order.argsort()[fields["edges"]]
    if fields["x"] is not None:
        fields["x"] = fields["x"][order]
    names = tuple(index)
    return Parts(
        name=name,
        source=str(path),
        batch=batch[order],
        num_graphs=len(graphs.lines),
        node_names=[names[i] for i in order.tolist()],
        graph_names=graphs.columns["id"],
        **label_fields(graphs, options),
        **fields,
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
    fields = _edge_fields(edges, index, nodes.source, options)
    return fields | {"x": x, "feature_names": names, "unused": [*fields["unused"], *unused]}


def _edge_fields(
    edges: Table, index: Mapping[Any, int], nodes_source: str, options: ReadOptions
) -> dict[str, Any]:
    """Edges as indices, their weights and kinds, and the names of other columns."""
    kinds = edges.columns.get("kind")
    others = [name for name in edges.columns if name not in (*ENDS, "kind", WEIGHT)]
    return {
        "edges": torch.tensor([_rows_of(edges, end, index, nodes_source) for end in ENDS]).long(),
        "num_nodes": len(index),
        "weights": _weights(edges) if options.weights and WEIGHT in edges.columns else None,
        "weight_at": lambda i: edges.where(i, WEIGHT),
        "kinds": None if kinds is None else encode_kinds(kinds, edges.source),
        "one_way": True,
        "unused": [f"edge {edges.words[1]} '{name}'" for name in others],
    }


def _weights(edges: Table) -> Tensor:
    numbers = []
    for i, cell in enumerate(edges.columns[WEIGHT]):
        try:
            numbers.append(float(cell))
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{edges.where(i, WEIGHT)}: '{str(cell)[:40]}' is no number; give every edge a "
                "weight, or ignore all of them with weights=False (--no-weights)"
            ) from None
    return torch.tensor(numbers, dtype=torch.float64)


def _rows_of(table: Table, column: str, index: Mapping[Any, int], listed_in: str) -> list[int]:
    """The index of the id in each cell of a column."""
    what, place = ("graph", "row") if column == "graph" else ("node", "edge")
    for i, cell in enumerate(table.columns[column]):
        if cell not in index:
            missing = f"{what} '{cell}' is not in {listed_in}"
            remedy = f"add it there or correct the {place}"
            raise InputError(f"{table.where(i, column)}: {missing}; {remedy}")
    return [index[cell] for cell in table.columns[column]]


def _group(nodes: Table, graphs: Table) -> tuple[Tensor, Tensor]:
    """The graph of each node, and the order that puts nodes graph after graph."""
    index = graphs.ids()
    batch = torch.tensor(_rows_of(nodes, "graph", index, graphs.source))
    empty = (torch.bincount(batch, minlength=len(index)) == 0).nonzero()
    if empty.numel():
        i = int(empty[0])
        raise InputError(
            f"{graphs.where(i, 'id')}: graph '{list(index)[i]}' has no nodes in {nodes.source}; "
            "give it some or remove it"
        )
    return batch, batch.argsort(stable=True)
