"""From what a reader found to a checked dataset; readers of PyG graphs and of matrices."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import unbatch, unbatch_edge_index

from vepm.data import canonical
from vepm.data.canonical import Kinds, canonical_edges, canonical_kinds, canonical_weights
from vepm.data.columns import ReadOptions, features_of
from vepm.data.dataset import Dataset
from vepm.data.labels import encode, item_masks
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, UNLABELLED

logger = logging.getLogger("vepm")

FEW_NODES = 2**20
MOST_GAPS = 64  # nodes for each edge of a large graph; with more, nearly all of them are isolated
_EDGE_KEYS = ("edge_weight", "edge_kind")


@dataclass(frozen=True, eq=False, kw_only=True)
class Parts:
    """What a reader found, not checked yet: one graph, or many as their disjoint union."""

    name: str
    source: str
    edges: Tensor  # edges [2, M] in any order
    edge_at: Callable[[int], str] | None = None  # where the i-th edge is, for messages
    one_way: bool = False  # whether edges are listed in one direction by convention
    directed: bool | None = None  # whether edges have directions; None if the data do not say
    weights: Tensor | None = None
    kinds: Kinds | None = None
    num_nodes: int
    node_names: Sequence[str] | None = None
    x: Tensor | None = None
    feature_names: Sequence[str] | None = None
    labels: Any = None  # integers or text; indices where ``class_names`` are given
    label_at: Callable[[int], str] | None = None
    class_names: Sequence[str] | None = None
    masks: Mapping[str, object] = field(default_factory=dict)
    memberships: Tensor | None = None
    batch: Tensor | None = None  # the graph of each node, ascending, if graphs are labelled
    num_graphs: int = 1
    graph_names: Sequence[str] | None = None
    folds: tuple[tuple[Tensor, Tensor], ...] | None = None
    unused: Sequence[str] = ()  # what the data hold and no model uses, in words

    def where(self, i: int) -> str:
        """Names the i-th edge in a message."""
        ends = " to ".join(map(str, self.edges[:, i].tolist()))
        return self.edge_at(i) if self.edge_at else f"{self.source}, edge from {ends}"


def build(parts: Parts, options: ReadOptions = ReadOptions()) -> Dataset:  # noqa: B008 # it is frozen
    """Check what a reader found and make a dataset of it; errors say what to do about it."""
    source, single = parts.source, parts.batch is None
    edge_index, changes = canonical_edges(parts.edges, parts.num_nodes, source=source)
    if parts.one_way or options.directed:
        changes = [change for change in changes if "reverse" not in change]
    _check_graphs(parts)
    if changes and options.strict:
        remedy = "correct the edges, or read them with strict=False (without --strict)"
        raise InputError(f"{source}: {', '.join(changes)}; {remedy}")
    if changes:
        logger.info("%s: %s", source, ", ".join(changes))
    unused = [*parts.unused, *(["the direction of edges"] if "reverse" in str(changes) else [])]
    # The user was warned when the model was fitted.
    if unused and options.class_names is None and options.feature_names is None:
        logger.warning("%s: not used: %s", source, ", ".join(unused))
    whole = _edges(parts, options, edge_index)
    whole.x, names = parts.x, parts.feature_names
    if parts.x is None:
        whole.x, names = canonical.structural_features(
            edge_index, parts.num_nodes, coordinates=single
        )
    if parts.class_names is not None:
        whole.y, classes = torch.as_tensor(parts.labels), tuple(parts.class_names)
    else:
        count = parts.num_nodes if single else parts.num_graphs
        where = parts.label_at or (lambda i: f"{source}, label {i}")
        whole.y, classes = encode(parts.labels, count, where, source, options.class_names)
    first, splits = item_masks(parts.masks, whole.y >= 0, source)
    graphs = [whole]
    if parts.batch is None:
        whole.update(dict(zip(MASK_NAMES, first, strict=True)))
        if parts.memberships is not None:
            whole.memberships = parts.memberships
    else:
        graphs = _graphs(whole, parts.batch)
        splits = splits or ((first,) if parts.masks else None)
    nodes = iter(parts.node_names or ())
    node_names = tuple(tuple(islice(nodes, graph.x.size(0))) for graph in graphs)
    return Dataset(
        name=parts.name,
        task="node" if single else "graph",
        graphs=graphs,
        num_classes=len(classes),
        class_names=classes,
        feature_names=None if names is None else tuple(names),
        kind_names=None if parts.kinds is None else parts.kinds[1],
        node_names=None if parts.node_names is None else node_names,
        graph_names=None if parts.graph_names is None else tuple(parts.graph_names),
        folds=parts.folds,
        splits=splits,
        source=source,
        num_positions=canonical.NUM_POSITIONS if parts.x is None and single else 0,
    )


def _check_graphs(parts: Parts) -> None:
    """Refuse large graphs of isolated nodes, graphs without nodes, and edges between graphs."""
    source, batch, count = parts.source, parts.batch, parts.edges.size(1)
    if parts.x is None and parts.num_nodes > max(FEW_NODES, MOST_GAPS * count):
        remedy = "number the nodes from 0, leave out isolated ones, or give features"
        raise InputError(f"{source}: {parts.num_nodes} nodes and only {count} edges; {remedy}")
    sizes = [parts.num_nodes]
    if batch is not None:
        sizes = batch.bincount(minlength=parts.num_graphs).tolist()
        for i in (batch[parts.edges[0]] != batch[parts.edges[1]]).nonzero().flatten().tolist():
            remedy = "name every node once, and let edges join nodes of one graph"
            raise InputError(f"{parts.where(i)}: the edge joins nodes of two graphs; {remedy}")
    if 0 in sizes:
        name = (parts.graph_names or range(len(sizes)))[sizes.index(0)]
        which = "the graph" if batch is None else f"graph '{name}'"
        raise InputError(f"{source}: {which} has no nodes; every graph needs at least one")


def _edges(parts: Parts, options: ReadOptions, edge_index: Tensor) -> Data:
    """A graph of edges and their attributes alone; ``edge_index`` has both directions."""
    graph, directed = Data(edge_index=edge_index), options.directed
    if directed:
        if parts.directed is False:
            remedy = "leave out directed=True (--directed), or give a directed graph"
            raise InputError(f"{parts.source}: its edges have no direction; {remedy}")
        graph.edge_index, _ = canonical_edges(parts.edges, parts.num_nodes, directed=True)
        graph.directed = True
    if options.weights and parts.weights is not None:
        single = parts.weights.float()
        for i in (~(single.isfinite() & (single > 0))).nonzero().flatten()[:1].tolist():
            wrong = f"the weight is {float(parts.weights[i]):g}; edge weights must be positive"
            remedy = "correct it, or ignore all of them with weights=False (--no-weights)"
            raise InputError(f"{parts.where(i)}: {wrong} and finite; {remedy}")
        graph.edge_weight = canonical_weights(
            graph.edge_index, parts.edges, parts.weights, directed, add=parts.directed is True
        )
    if parts.kinds is not None:
        graph.edge_kind = canonical_kinds(graph.edge_index, parts.edges, parts.kinds[0], directed)
    return graph


def _graphs(union: Data, batch: Tensor) -> list[Data]:
    """The graphs of a disjoint union whose nodes are in the order of their graphs."""
    count, owner = union.y.numel(), batch[union.edge_index[1]]
    columns = {
        "x": unbatch(union.x, batch, batch_size=count),
        "edge_index": unbatch_edge_index(union.edge_index, batch, count),
        "y": union.y.split(1),
    }
    for name in _EDGE_KEYS:
        if name in union:
            columns[name] = unbatch(union[name], owner, batch_size=count)
    flags = {"directed": True} if "directed" in union else {}
    # Clones, so that keeping or saving one graph does not keep them all.
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return [Data(**{key: part.clone() for key, part in row.items()}, **flags) for row in rows]


def data_parts(
    graphs: list[Data], name: str, *, single: bool, source: str = "", **more: Any
) -> Parts:
    """The disjoint union of PyG graphs; with ``single`` there is one, whose nodes have labels."""
    source = source or name
    checked = [
        _checked(graph, source if single else f"{source}, graph {i}", single)
        for i, graph in enumerate(graphs)
    ]
    widths = [
        {key: list(graph[key].shape[1:]) for key in ("x", *_EDGE_KEYS) if key in graph}
        for graph in checked
    ]
    for i, width in enumerate(widths):
        if width != widths[0]:
            found = f"graph {i} holds columns {width} and graph 0 {widths[0]}"
            raise InputError(f"{source}: {found}; give all graphs the same")
    union = checked[0] if single else Batch.from_data_list(checked)
    weights, kinds = (union.get(key) for key in _EDGE_KEYS)
    named = graphs[0].get("kind_names")
    every = dict.fromkeys(key for graph in graphs for key in graph.to_dict() if key[:5] == "edge_")
    return Parts(
        name=name,
        source=source,
        edges=union.edge_index,
        num_nodes=union.num_nodes,
        x=union.get("x"),
        labels=union.get("y"),
        masks={mask: graphs[0].get(mask) for mask in MASK_NAMES} if single else {},
        batch=None if single else union.batch,
        num_graphs=len(graphs),
        weights=None if weights is None else weights.reshape(-1).double(),
        kinds=None if kinds is None else canonical.kind_table(kinds, named, source),
        unused=[f"'{key}'" for key in every if key not in ("edge_index", *_EDGE_KEYS)],
        **more,
    )


def _checked(data: Data, source: str, single: bool) -> Data:
    """What a graph holds, with types and shapes checked."""
    num_nodes, edges, y = count_nodes(data), data.edge_index, data.y
    shape = list(edges.shape) if isinstance(edges, Tensor) else []
    if len(shape) != 2 or shape[0] != 2 or (edges.is_floating_point() and edges.numel()):
        found = f"{shape} {edges.dtype}" if isinstance(edges, Tensor) else "missing"
        raise InputError(f"{source}: edge_index is {found}; a [2, E] tensor of integers is needed")
    found = Data(edge_index=edges.detach().cpu().long(), num_nodes=num_nodes)
    if data.x is not None:
        found.x = canonical.feature_table(data.x, num_nodes, source)
        if canonical.is_sparse(found.x) and not single:
            wrong = f"{list(found.x.shape)} sparse features are too many for a full table"
            raise InputError(f"{source}: {wrong}, which sets of graphs need; take fewer columns")
    for key in (key for key in _EDGE_KEYS if data.get(key) is not None):
        values = data[key]
        fits = isinstance(values, Tensor) and 0 < values.dim() <= 2 and len(values) == shape[1]
        if not fits or (key == "edge_weight" and values.numel() != shape[1]) or values.is_complex():
            raise InputError(f"{source}: {key} does not fit edge_index; give one entry per edge")
        found[key] = values.detach().cpu()
    count = num_nodes if single else 1
    if y is None and not single:
        y = torch.tensor([UNLABELLED])
    if y is not None:
        if not isinstance(y, Tensor) or y.numel() != count:
            shown = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
            needed = f"one label per {'node' if single else 'graph'} ([{count}]) is needed"
            raise InputError(f"{source}: y is {shown} for {num_nodes} nodes; {needed}")
        found.y = y.detach().cpu().reshape(-1)
    return found


def count_nodes(data: Data) -> int:
    """Number of nodes, as the graph states it or else as its edges imply."""
    x, y, edges = data.x, data.y, data.edge_index
    if x is not None and np.ndim(x) > 0:
        return len(x)
    if "num_nodes" in data:
        return int(data["num_nodes"])
    if isinstance(y, Tensor) and y.numel() > 1:
        return y.numel()
    return max(int(edges.max()) + 1, 1) if isinstance(edges, Tensor) and edges.numel() else 0


def matrix_parts(
    x: Any, adjacency: Any, y: Any = None, *, source: str, options: ReadOptions, **more: Any
) -> Parts:
    """A node task from features [N, F], a matrix [N, N] of the weights of edges and labels [N].

    The ``kinds`` among the other fields are those of the stored entries of a sparse matrix.
    """
    matrix: Any = adjacency if sp.issparse(adjacency) else np.asarray(adjacency)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "biuf":
        needed = "it must be square, a row and a column of numbers per node"
        found = f"{list(matrix.shape)} {matrix.dtype}"
        raise InputError(f"{source}: the adjacency matrix is {found}; {needed}")
    coo: Any = sp.coo_array(matrix)
    present, kinds = coo.data != 0, more.pop("kinds", None)
    table, names, unused = features_of(x, coo.shape[0], options, source)
    return Parts(
        source=source,
        edges=torch.from_numpy(np.stack(coo.coords)[:, present].astype(np.int64)),
        num_nodes=coo.shape[0],
        x=table,
        feature_names=names,
        labels=y,
        weights=torch.from_numpy(coo.data[present].astype(np.float64)),
        kinds=kinds and (kinds[0][torch.from_numpy(present)], kinds[1]),
        unused=[*unused, *more.pop("unused", ())],
        **more,
    )
