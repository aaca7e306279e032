"""NetworkX graphs, in memory or as GraphML."""

import logging
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.assemble import node_dataset
from vepm.data.cleaning import canonical_edges, check_features, report
from vepm.data.dataset import Dataset
from vepm.data.labels import encode_text
from vepm.data.masks import masks_from_text
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

logger = logging.getLogger("vepm")

_LABEL_NAMES = ("label", "y")


def node_task(
    graph: Any, *, name: str, source: str, class_names: Sequence[str] | None, strict: bool
) -> Dataset:
    """A node task: attribute ``label`` (or ``y``) is the label, ``split`` says train/val/test."""
    data, features = to_data(graph, source, strict=strict, skip=(*_LABEL_NAMES, "split"))
    nodes = list(graph)
    label = next((n for n in _LABEL_NAMES if any(n in graph.nodes[v] for v in nodes)), "label")
    values = [label_text(graph.nodes[v].get(label)) for v in nodes]
    data.y, names = encode_text(values, lambda i: f"{source}, node '{nodes[i]}'", class_names)
    if any("split" in graph.nodes[v] for v in nodes):
        split = [str(graph.nodes[v].get("split", "")) for v in nodes]
        masks = masks_from_text(split, source, list(range(1, len(nodes) + 1)))
        for mask_name, mask in zip(MASK_NAMES, masks, strict=True):
            data[mask_name] = mask
    return node_dataset(
        data,
        name=name,
        source=source,
        class_names=names,
        feature_names=features,
        node_names=[str(v) for v in nodes],
    )


def graph_label(graph: Any) -> str:
    """The label of a whole graph: ``graph.graph["label"]`` (or ``"y"``); empty if there is none."""
    return next((label_text(graph.graph[n]) for n in _LABEL_NAMES if n in graph.graph), "")


def label_text(value: object) -> str:
    """A label as text; empty if there is none."""
    return "" if value is None else str(value)


def to_data(
    graph: Any, source: str, *, strict: bool, skip: Sequence[str] = ()
) -> tuple[Data, tuple[str, ...] | None]:
    """Edges and numeric attributes of a NetworkX graph, and the names of these attributes."""
    nodes = list(graph)
    if not nodes:
        raise InputError(f"{source}: the graph has no nodes; every graph needs at least one")
    index = {node: i for i, node in enumerate(nodes)}
    ends = torch.tensor([(index[u], index[v]) for u, v in graph.edges()], dtype=torch.long)
    one_way = not graph.is_directed()
    edge_index, found = canonical_edges(
        ends.view(-1, 2).t(), len(nodes), source=source, one_way=one_way
    )
    report(found, source, strict=strict)
    data = Data(edge_index=edge_index, num_nodes=len(nodes))
    data.x, names = _features(graph, nodes, source, skip)
    return data, names


def _features(
    graph: Any, nodes: list[Any], source: str, skip: Sequence[str]
) -> tuple[Tensor | None, tuple[str, ...] | None]:
    keys = dict.fromkeys(key for v in nodes for key in graph.nodes[v] if key not in skip)
    columns, names = [], []
    for key in keys:
        values = [graph.nodes[v].get(key) for v in nodes]
        if not all(value is None or _is_numeric(value) for value in values):
            logger.info("%s: attribute '%s' is not numeric and is not used", source, key)
            continue
        column = _column(values, key, nodes, source)
        columns.append(column)
        width = column.size(1)
        names += [str(key)] if width == 1 else [f"{key}_{i}" for i in range(width)]
    if not columns:
        return None, None
    return check_features(torch.cat(columns, dim=1), len(nodes), source, names), tuple(names)


def _column(values: list[Any], key: object, nodes: list[Any], source: str) -> Tensor:
    """One attribute of all nodes [N, width]; width above 1 where values are vectors."""
    width = next(np.size(value) for value in values if value is not None)
    for node, value in zip(nodes, values, strict=True):
        if value is None or np.size(value) != width:
            what = "is missing" if value is None else f"has {np.size(value)} numbers, not {width}"
            raise InputError(
                f"{source}, node '{node}': attribute '{key}' {what}; give it to every node alike"
            )
    return torch.from_numpy(np.array(values, dtype=np.float64).reshape(len(values), -1))


def _is_numeric(value: object) -> bool:
    if isinstance(value, (list, tuple, np.ndarray)):
        return np.size(value) > 0 and all(isinstance(v, Real) for v in np.ravel(value).tolist())
    return isinstance(value, Real)
