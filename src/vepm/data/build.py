"""The one way from what a reader found to a checked dataset; PyG graphs and matrices as found."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import unbatch, unbatch_edge_index

from vepm.data.canonical import canonical_edges, canonical_kinds, canonical_weights, kind_table
from vepm.data.columns import ReadOptions
from vepm.data.dataset import Dataset
from vepm.data.labels import encode, item_masks
from vepm.data.node_features import feature_table, features_of
from vepm.data.scaling import NUM_POSITIONS, structural_features
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, UNLABELLED

logger = logging.getLogger("vepm")

FEW_NODES = 2**20
MOST_GAPS = 64  # nodes for each edge of a large graph; with more, nearly all of them are isolated
_EDGE_KEYS = ("edge_weight", "edge_kind")


@dataclass(frozen=True, eq=False, kw_only=True)
class Parts:
    """What a reader found, not checked yet: one graph, or many as their disjoint union.

    ``data`` has ``num_nodes`` and ``edge_index`` [2, M] in any order; perhaps ``edge_weight``,
    ``edge_kind`` (text, bit masks [M] or a table [M, R]), ``x``, ``y`` (integers or text), masks,
    ``memberships``; and, if graphs are labelled, ``batch``, the graph of each node, ascending.
    """

    name: str
    source: str
    data: Data
    num_graphs: int = 1
    one_way: bool = False  # whether edges are listed in one direction by convention
    directed: bool | None = None  # whether edges have directions; None if the data do not say
    edge_at: Callable[[int], str] | None = None  # where the i-th edge is, for messages
    label_at: Callable[[int], str] | None = None
    feature_names: tuple[str, ...] | None = None
    node_names: Sequence[str] | None = None
    graph_names: tuple[str, ...] | None = None
    kind_names: Sequence[str] | None = None
    unused: Sequence[str] = ()  # what the data hold and no model uses, in words

    def where(self, i: int) -> str:
        """Names the i-th edge in a message."""
        ends = " to ".join(map(str, self.data.edge_index[:, i].tolist()))
        return self.edge_at(i) if self.edge_at else f"{self.source}, edge from {ends}"


def build(parts: Parts, options: ReadOptions = ReadOptions()) -> Dataset:  # noqa: B008 # it is frozen
    """Check what a reader found and make a dataset of it; errors say what to do about it."""
    data, source, names = parts.data, parts.source, parts.feature_names
    single, num_nodes = data.batch is None, data.num_nodes
    edge_index, changes = canonical_edges(data.edge_index, num_nodes, source=source)
    if parts.one_way or options.directed:
        changes = [change for change in changes if "reverse" not in change]
    _check_graphs(parts)
    if changes and options.strict:
        remedy = "correct the edges, or read them with strict=False (without --strict)"
        raise InputError(f"{source}: {', '.join(changes)}; {remedy}")
    if changes:
        logger.info("%s: %s", source, ", ".join(changes))
    unused = [*parts.unused, *(["the direction of edges"] if "reverse" in str(changes) else [])]
    # A fitted model has had its warnings.
    if unused and options.class_names is None and options.feature_names is None:
        logger.warning("%s: not used: %s", source, ", ".join(unused))
    whole, kind_names = _edges(parts, options, edge_index)
    whole.x = data.x
    if data.x is None:
        whole.x, names = structural_features(edge_index, num_nodes, coordinates=single)
    count = num_nodes if single else parts.num_graphs
    whole.y, classes = encode(data.y, count, parts.label_at, source, options.class_names)
    first, splits = item_masks(data.to_dict(), whole.y >= 0, source)
    graphs = [whole] if single else _graphs(whole, data.batch)
    if single:
        whole.update(dict(zip(MASK_NAMES, first, strict=True)))
        whole.memberships = data.get("memberships")
    elif any(name in data for name in MASK_NAMES):
        splits = splits or (first,)
    nodes = iter(parts.node_names or ())
    node_names = tuple(tuple(islice(nodes, graph.x.size(0))) for graph in graphs)
    return Dataset(
        name=parts.name,
        task="node" if single else "graph",
        graphs=graphs,
        num_classes=len(classes),
        class_names=classes,
        feature_names=names,
        kind_names=kind_names,
        node_names=node_names if parts.node_names else None,
        graph_names=parts.graph_names,
        splits=splits,
        source=source,
        num_positions=NUM_POSITIONS if data.x is None and single else 0,
    )


def _check_graphs(parts: Parts) -> None:
    data, source, count = parts.data, parts.source, parts.data.edge_index.size(1)
    if data.x is None and data.num_nodes > max(FEW_NODES, MOST_GAPS * count):
        remedy = "number the nodes from 0, leave out isolated ones, or give features"
        raise InputError(f"{source}: {data.num_nodes} nodes and only {count} edges; {remedy}")
    sizes = [data.num_nodes]
    if data.batch is not None:
        sizes = data.batch.bincount(minlength=parts.num_graphs).tolist()
        start, end = data.batch[data.edge_index]
        for i in (start != end).nonzero().flatten().tolist():
            remedy = "name every node once, and let edges join nodes of one graph"
            raise InputError(f"{parts.where(i)}: the edge joins nodes of two graphs; {remedy}")
    if 0 in sizes:
        name = (parts.graph_names or range(len(sizes)))[sizes.index(0)]
        which = "the graph" if data.batch is None else f"graph '{name}'"
        raise InputError(f"{source}: {which} has no nodes; every graph needs at least one")


def _edges(
    parts: Parts, options: ReadOptions, edge_index: Tensor
) -> tuple[Data, tuple[str, ...] | None]:
    """A graph of edges alone, with what is known of each, and the names of their kinds."""
    graph, listed, names = Data(edge_index=edge_index), parts.data.edge_index, None
    weights, kinds = (parts.data.get(key) for key in _EDGE_KEYS)
    if options.directed:
        if parts.directed is False:
            remedy = "leave out directed=True (--directed), or give a directed graph"
            raise InputError(f"{parts.source}: its edges have no direction; {remedy}")
        graph.edge_index, _ = canonical_edges(listed, parts.data.num_nodes, directed=True)
        graph.directed = True
    if options.weights and weights is not None:
        single = weights.float()
        for i in (~(single.isfinite() & (single > 0))).nonzero().flatten()[:1].tolist():
            wrong = f"the weight is {float(weights[i]):g}; edge weights must be positive and finite"
            remedy = "correct it, or ignore all of them with weights=False (--no-weights)"
            raise InputError(f"{parts.where(i)}: {wrong}; {remedy}")
        graph.edge_weight = canonical_weights(
            graph.edge_index, listed, weights, options.directed, add=parts.directed is True
        )
    if kinds is not None:
        table, names = kind_table(kinds, parts.kind_names, parts.source)
        graph.edge_kind = canonical_kinds(graph.edge_index, listed, table, options.directed)
    return graph, names


def _graphs(union: Data, batch: Tensor) -> list[Data]:
    count, owner = union.y.numel(), batch[union.edge_index[1]]
    columns = {
        "x": unbatch(union.x, batch, batch_size=count),
        "edge_index": unbatch_edge_index(union.edge_index, batch, count),
        "y": union.y.split(1),
    }
    for key in (key for key in _EDGE_KEYS if key in union):
        columns[key] = unbatch(union[key], owner, batch_size=count)
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    # Clones, so that keeping or saving one graph does not keep them all.
    return [Data(**row, directed=union.get("directed")).clone() for row in rows]


def data_parts(
    graphs: list[Data], name: str, *, single: bool, source: str = "", **more: Any
) -> Parts:
    """The disjoint union of PyG graphs; with ``single`` there is one, whose nodes have labels."""
    source = source or name
    places = [source] if single else [f"{source}, graph {i}" for i in range(len(graphs))]
    checked = [_checked(*pair, single) for pair in zip(graphs, places, strict=True)]
    widths = [
        {key: list(graph[key].shape[1:]) for key in ("x", *_EDGE_KEYS) if key in graph}
        for graph in checked
    ]
    for i, width in enumerate(widths):
        if width != widths[0]:
            found = f"graph {i} holds columns {width} and graph 0 {widths[0]}"
            raise InputError(f"{source}: {found}; give all graphs the same")
    every = dict.fromkeys(key for graph in graphs for key in graph.to_dict() if key[:5] == "edge_")
    return Parts(
        name=name,
        source=source,
        data=checked[0] if single else Batch.from_data_list(checked),
        num_graphs=len(graphs),
        kind_names=graphs[0].get("kind_names"),
        unused=[f"'{key}'" for key in every if key not in ("edge_index", *_EDGE_KEYS)],
        **more,
    )


def _checked(data: Data, source: str, single: bool) -> Data:
    """What a graph holds, with types and shapes checked."""
    num_nodes, edges = count_nodes(data), data.edge_index
    shape = list(edges.shape) if isinstance(edges, Tensor) else []
    if len(shape) != 2 or shape[0] != 2 or (edges.is_floating_point() and edges.numel()):
        found = f"{shape} {edges.dtype}" if isinstance(edges, Tensor) else "missing"
        raise InputError(f"{source}: edge_index is {found}; a [2, E] tensor of integers is needed")
    found = Data(edge_index=edges.detach().cpu().long(), num_nodes=num_nodes)
    if data.x is not None:
        found.x = feature_table(data.x, num_nodes, source)
        if found.x.is_sparse and not single:
            wrong = f"{list(found.x.shape)} sparse features are too many for a full table"
            raise InputError(f"{source}: {wrong}, which sets of graphs need; take fewer columns")
    for key in (key for key in _EDGE_KEYS if data.get(key) is not None):
        values = data[key]
        fits = isinstance(values, Tensor) and 0 < values.dim() <= 2 and len(values) == shape[1]
        if not fits or (key == "edge_weight" and values.numel() != shape[1]) or values.is_complex():
            raise InputError(f"{source}: {key} does not fit edge_index; give one entry per edge")
        found[key] = values.detach().cpu()
    if "edge_weight" in found:
        found.edge_weight = found.edge_weight.reshape(-1)
    if single:
        found.update({key: data.get(key) for key in ("y", *MASK_NAMES)})
        return found
    y = torch.tensor([UNLABELLED]) if data.y is None else data.y
    if not isinstance(y, Tensor) or y.numel() != 1:
        shown = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(f"{source}: y is {shown}; one label per graph ([1]) is needed")
    found.y = y.detach().cpu().reshape(-1)
    return found


def count_nodes(data: Data) -> int:
    """Number of nodes, from what the graph says outright before what its edges imply."""
    x, y, edges = data.x, data.y, data.edge_index
    if x is not None and np.ndim(x) > 0:
        return len(x)
    if "num_nodes" in data:
        return int(data["num_nodes"])
    if isinstance(y, Tensor) and y.numel() > 1:
        return y.numel()
    return max(int(edges.max()) + 1, 1) if isinstance(edges, Tensor) and edges.numel() else 0


def matrix_parts(
    x: Any,
    adjacency: Any,
    y: Any = None,
    *,
    source: str,
    options: ReadOptions,
    unused: Sequence[str] = (),
    **more: Any,
) -> Parts:
    """A node task from features [N, F], a matrix [N, N] of the weights of edges and labels [N]."""
    matrix: Any = adjacency if sp.issparse(adjacency) else np.asarray(adjacency)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "biuf":
        needed = "it must be square, a row and a column of numbers per node"
        found = f"{list(matrix.shape)} {matrix.dtype}"
        raise InputError(f"{source}: the adjacency matrix is {found}; {needed}")
    coo: Any = sp.coo_array(matrix)
    table, names, left = features_of(x, coo.shape[0], options, source)
    present = coo.data != 0
    data = Data(
        edge_index=torch.from_numpy(np.stack(coo.coords)[:, present].astype(np.int64)),
        edge_weight=torch.from_numpy(coo.data[present].astype(np.float64)),
        num_nodes=coo.shape[0],
        x=table,
        y=y,
    )
    return Parts(source=source, data=data, feature_names=names, unused=[*left, *unused], **more)
