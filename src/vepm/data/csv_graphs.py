"""Graphs as tables: edges.csv, nodes.csv and, for graph tasks, graphs.csv; edges alone."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.build import Parts
from vepm.data.columns import ReadOptions, Table
from vepm.data.labels import is_number
from vepm.data.tables import ENDS, read_edge_list, read_table
from vepm.errors import InputError

_USED = (*ENDS, "weight", "kind")


def read_edges(path: Path, options: ReadOptions, name: str = "") -> Parts:
    """A file of edges, which has a header if it is CSV: nodes are those it names, unlabelled."""
    edges = read_table(path, ENDS) if path.suffix.lower() == ".csv" else read_edge_list(path)
    pairs = zip(*(edges.columns[end] for end in ENDS), strict=True)
    names = [name for name in dict.fromkeys(end for pair in pairs for end in pair) if name]
    nodes = Table(str(path), {"id": names}, names, ("node", "column"))
    return table_parts(name or path.stem, str(path), nodes, edges, nodes.ids(), options)


def read_folder(path: Path, options: ReadOptions) -> Parts:
    """A folder with ``edges.csv`` and perhaps ``nodes.csv`` and ``graphs.csv``."""
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
    more: Any = {"graph_names": tuple(graphs.columns["id"]), "batch": torch.tensor(sorted(owner))}
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
    batch: Tensor | None = None,
    text: bool = True,
    **more: Any,
) -> Parts:
    """What tables of nodes, whose rows are in ``index``, of edges and perhaps of graphs hold."""
    labelled, label = graphs or nodes, options.label or "label"
    if options.label is not None and label not in labelled.columns:
        missing = f"{labelled.source}: there is no {labelled.words[1]} '{label}' with labels"
        raise InputError(f"{missing} (found: {', '.join(labelled.columns)[:200]})")
    labels = labelled.columns.get(label)
    other = {"id", "graph"} if graphs else {"id", label, "split"}
    columns = {key: cells for key, cells in nodes.columns.items() if key not in other}
    x, names, unused = replace(nodes, columns=columns).features(options, text=text)
    weights = edges.columns.get("weight", ()) if options.weights else ()
    # What is no number is refused with numbers that cannot be weights.
    numbers = [math.nan if np.ndim(w) or not is_number(w) else float(w) for w in weights]
    left = [f"edge {edges.words[1]} '{key}'" for key in edges.columns if key not in _USED]
    ends = [edges.rows_of(end, index, nodes.source) for end in ENDS]
    data = Data(
        edge_index=torch.tensor(ends).long(),
        edge_weight=torch.tensor(numbers, dtype=torch.float64) if numbers else None,
        edge_kind=edges.columns.get("kind"),
        num_nodes=len(index),
        x=x,
        y=None if labels is None else np.array(labels, dtype=object),
        batch=batch,
        **labelled.masks(),
    )
    return Parts(
        name=name,
        source=source,
        data=data,
        edge_at=edges.where,
        label_at=lambda i: labelled.where(i, label),
        node_names=[str(name) for name in nodes.columns["id"]],
        feature_names=names,
        num_graphs=len(graphs.lines) if graphs else 1,
        unused=[*left, *unused],
        **{"one_way": True} | more,
    )
