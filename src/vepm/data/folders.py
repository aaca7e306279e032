"""Users' graphs as CSV files: edges.csv, nodes.csv and, for graph tasks, graphs.csv."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.assemble import node_dataset, split_union
from vepm.data.cleaning import DEGREE_FEATURES, canonical_edges, degree_features, report
from vepm.data.dataset import Dataset
from vepm.data.labels import encode_text
from vepm.data.masks import masks_from_text
from vepm.data.tables import Table, index_of, parse_features, read_table
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, Masks


def read_folder(path: Path, *, strict: bool, class_names: Sequence[str] | None) -> Dataset:
    """A folder with ``edges.csv`` and perhaps ``nodes.csv`` and ``graphs.csv``."""
    if (path / "graphs.csv").exists():
        return _read_graphs(path, strict, class_names)
    if not (path / "nodes.csv").exists():
        return read_edges(path / "edges.csv", name=path.resolve().name, strict=strict)
    return _read_nodes(path, strict, class_names)


def read_edges(path: Path, *, name: str, strict: bool) -> Dataset:
    """A file of edges alone: nodes are those it names, in order of appearance, unlabelled."""
    table = read_table(path, ("source", "target"))
    ends = zip(table.column("source"), table.column("target"), strict=True)
    index = {node: i for i, node in enumerate(dict.fromkeys(end for pair in ends for end in pair))}
    if "" in index:
        row = next(i for i, cells in enumerate(table.rows) if not _ends(table, cells))
        raise InputError(f"{table.where(row, 'source, target')}: an end is empty; name both ends")
    edge_index = _canonical(_edge_ends(table, index, "edges.csv"), len(index), table, strict)
    data = Data(edge_index=edge_index, num_nodes=len(index))
    return node_dataset(data, name=name, source=str(path), class_names=(), node_names=tuple(index))


def _read_nodes(path: Path, strict: bool, class_names: Sequence[str] | None) -> Dataset:
    nodes = read_table(path / "nodes.csv", ("id",))
    edges = read_table(path / "edges.csv", ("source", "target"))
    index = index_of(nodes)
    edge_index = _canonical(_edge_ends(edges, index, nodes.source), len(index), edges, strict)
    features = [c for c in nodes.columns if c not in ("id", "label", "split")]
    data = Data(edge_index=edge_index, num_nodes=len(index))
    if features:
        data.x = parse_features(nodes, features)
    data.y, names = _labels(nodes, class_names)
    if "split" in nodes.columns:
        split = masks_from_text(nodes.column("split"), nodes.source, nodes.lines)
        for mask_name, mask in zip(MASK_NAMES, split, strict=True):
            data[mask_name] = mask
    return node_dataset(
        data,
        name=path.resolve().name,
        source=str(path),
        class_names=names,
        feature_names=features,
        node_names=tuple(index),
    )


def _read_graphs(path: Path, strict: bool, class_names: Sequence[str] | None) -> Dataset:
    graphs = read_table(path / "graphs.csv", ("id", "label"))
    nodes = read_table(path / "nodes.csv", ("id", "graph"))
    edges = read_table(path / "edges.csv", ("source", "target"))
    _refuse_columns(nodes, ("label", "split"))
    index = index_of(nodes)
    batch, order = _group(nodes, graphs)
    edge_index = _union_edges(edges, nodes, index, batch, order, strict)
    features = [c for c in nodes.columns if c not in ("id", "graph")]
    x = parse_features(nodes, features)[order] if features else None
    x = degree_features(edge_index, len(index)) if x is None else x
    y, names = _labels(graphs, class_names)
    ids = list(index)
    counts = torch.bincount(batch, minlength=y.numel()).tolist()
    return Dataset(
        name=path.resolve().name,
        task="graph",
        graphs=split_union(x, edge_index, batch[order], y),
        num_classes=len(names),
        class_names=names,
        feature_names=tuple(features) or DEGREE_FEATURES,
        node_names=tuple(tuple(ids[i] for i in part) for part in order.split(counts)),
        graph_names=tuple(graphs.column("id")),
        splits=_graph_split(graphs),
        source=str(path),
    )


def _refuse_columns(nodes: Table, columns: Sequence[str]) -> None:
    for column in columns:
        if column in nodes.columns:
            raise InputError(
                f"{nodes.source}: column '{column}' belongs in graphs.csv in a graph task; "
                "rename it to use it as a numeric feature"
            )


def _graph_split(graphs: Table) -> tuple[Masks, ...] | None:
    if "split" not in graphs.columns:
        return None
    return (masks_from_text(graphs.column("split"), graphs.source, graphs.lines),)


def _union_edges(
    edges: Table, nodes: Table, index: dict[str, int], batch: Tensor, order: Tensor, strict: bool
) -> Tensor:
    """Canonical edges between nodes numbered graph after graph."""
    ends = _edge_ends(edges, index, nodes.source)
    _refuse_bridges(batch[ends], edges)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.numel())
    return _canonical(rank[ends], len(index), edges, strict)


def _group(nodes: Table, graphs: Table) -> tuple[Tensor, Tensor]:
    """The graph of each node, and the order that puts nodes graph after graph."""
    index = index_of(graphs)
    owners = nodes.column("graph")
    for i, owner in enumerate(owners):
        if owner not in index:
            raise InputError(
                f"{nodes.where(i, 'graph')}: graph '{owner}' is not in {graphs.source}; "
                "add it there"
            )
    batch = torch.tensor([index[owner] for owner in owners])
    empty = (torch.bincount(batch, minlength=len(index)) == 0).nonzero()
    if empty.numel():
        i = int(empty[0])
        raise InputError(
            f"{graphs.where(i, 'id')}: graph '{list(index)[i]}' has no nodes in {nodes.source}; "
            "give it some or remove it"
        )
    return batch, batch.argsort(stable=True)


def _refuse_bridges(ends: Tensor, edges: Table) -> None:
    bad = (ends[0] != ends[1]).nonzero()
    if bad.numel():
        row = int(bad[0])
        raise InputError(
            f"{edges.where(row, 'source, target')}: the edge joins nodes of two graphs; "
            "node ids are shared by all graphs, so name each node once"
        )


def _edge_ends(edges: Table, index: dict[str, int], nodes_source: str) -> Tensor:
    """Edges [2, M] as positions in the index."""
    ends = []
    for column in ("source", "target"):
        cells = edges.column(column)
        for i, cell in enumerate(cells):
            if cell not in index:
                raise InputError(
                    f"{edges.where(i, column)}: node '{cell}' is not in {nodes_source}; "
                    "add it there or mend the edge"
                )
        ends.append([index[cell] for cell in cells])
    return torch.tensor(ends)


def _ends(table: Table, cells: list[str]) -> bool:
    """Whether a row names both ends of its edge."""
    return all(cells[table.columns.index(column)].strip() for column in ("source", "target"))


def _canonical(ends: Tensor, num_nodes: int, table: Table, strict: bool) -> Tensor:
    edge_index, found = canonical_edges(ends, num_nodes, source=table.source, one_way=True)
    report(found, table.source, strict=strict)
    return edge_index


def _labels(table: Table, class_names: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    if "label" not in table.columns:
        return torch.full((len(table.rows),), -1), tuple(class_names or ())
    return encode_text(table.column("label"), lambda i: table.where(i, "label"), class_names)
