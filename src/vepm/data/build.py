"""The one way from what a reader found to a checked dataset."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import unbatch, unbatch_edge_index

from vepm.data.dataset import Dataset
from vepm.data.edges import Kinds, canonical_edges, canonical_kinds, canonical_weights
from vepm.data.features import NUM_POSITIONS, check_finite, structural_features
from vepm.data.labels import encode, item_masks
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

logger = logging.getLogger("vepm")

FEW_NODES = 2**20
MOST_GAPS = 64  # nodes for each edge of a large graph; with more, nearly all of them are isolated


@dataclass(frozen=True)
class ReadOptions:
    """What a user, or a fitted model, asks of a reader: the arguments of :func:`read`."""

    label: str | None = None
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()
    class_names: Sequence[str] | None = None
    feature_names: Sequence[str] | None = None
    strict: bool = False
    weights: bool = True
    directed: bool = False


def refuse_choice(source: str, options: ReadOptions) -> None:
    """Refuse to choose among columns that have no names."""
    if options.features is not None or options.drop:
        raise InputError(f"{source}: its feature columns have no names to choose or drop them by")


@dataclass(frozen=True, eq=False, kw_only=True)
class Parts:
    """What a reader found, not checked yet: one graph, or many as their disjoint union.

    With a ``batch``, the graph of each node in non-decreasing order, labels, masks and folds are
    those of graphs, otherwise of nodes.
    """

    name: str
    source: str
    edges: Tensor  # edges [2, M] in any order
    one_way: bool = False  # whether edges are listed in one direction by convention
    directed: bool | None = None  # whether edges have directions; None if the data do not say
    weights: Tensor | None = None
    weight_at: Callable[[int], str] | None = None  # where the i-th weight is, for messages
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
    batch: Tensor | None = None
    graph_names: Sequence[str] | None = None
    folds: tuple[tuple[Tensor, Tensor], ...] | None = None
    unused: Sequence[str] = ()  # what the data hold and no model uses, in words


def build(parts: Parts, options: ReadOptions = ReadOptions()) -> Dataset:  # noqa: B008 # it is frozen
    """Check what a reader found and make a dataset of it; errors say what to do about it."""
    edge_index, found = canonical_edges(
        parts.edges, parts.num_nodes, source=parts.source, one_way=parts.one_way or options.directed
    )
    if found:
        line = f"{parts.source}: {', '.join(found)}"
        if options.strict:
            remedy = "correct the edges, or read them with strict=False (without --strict)"
            raise InputError(f"{line}; {remedy}")
        logger.info(line)
    whole = _edges(parts, options, edge_index)
    unused = [*parts.unused, *(["the direction of edges"] if "reverse" in str(found) else [])]
    # A fitted model has had its warnings.
    if unused and options.class_names is None and options.feature_names is None:
        logger.warning("%s: not used: %s", parts.source, ", ".join(unused))
    whole.x, names = _features(parts, edge_index)
    whole.y, classes = _labels(parts, options)
    first, splits = item_masks(parts.masks, whole.y >= 0, parts.source)
    if parts.batch is None:
        whole.update(dict(zip(MASK_NAMES, first, strict=True)))
        if parts.memberships is not None:
            whole.memberships = parts.memberships
        graphs = [whole]
    else:
        graphs = _graphs(whole, parts.batch)
        splits = splits or ((first,) if parts.masks else None)
    node_names = iter(parts.node_names or ())
    return Dataset(
        name=parts.name,
        task="node" if parts.batch is None else "graph",
        graphs=graphs,
        num_classes=len(classes),
        class_names=classes,
        feature_names=None if names is None else tuple(names),
        kind_names=None if parts.kinds is None else parts.kinds[1],
        node_names=None
        if parts.node_names is None
        else tuple(tuple(islice(node_names, graph.x.size(0))) for graph in graphs),
        graph_names=None if parts.graph_names is None else tuple(parts.graph_names),
        folds=parts.folds,
        splits=splits,
        source=parts.source,
        num_positions=NUM_POSITIONS if parts.x is None and parts.batch is None else 0,
    )


def _edges(parts: Parts, options: ReadOptions, edge_index: Tensor) -> Data:
    """A graph of edges alone, with what is known of each; ``edge_index`` has both directions."""
    graph, directed = Data(edge_index=edge_index), options.directed
    if directed:
        if parts.directed is False:
            remedy = "leave out directed=True (--directed), or give a directed graph"
            raise InputError(f"{parts.source}: its edges have no direction; {remedy}")
        graph.edge_index, _ = canonical_edges(parts.edges, parts.num_nodes, directed=True)
        graph.directed = True
    if options.weights and parts.weights is not None:
        where = parts.weight_at or (lambda i: f"{parts.source}, edge {i}")
        add = parts.directed is True
        weights = canonical_weights(
            graph.edge_index, parts.edges, parts.weights, where, directed=directed, add=add
        )
        graph.update({} if weights is None else {"edge_weight": weights})
    if parts.kinds is not None:
        graph.edge_kind = canonical_kinds(graph.edge_index, parts.edges, parts.kinds[0], directed)
    return graph


def _features(parts: Parts, edge_index: Tensor) -> tuple[Tensor, Sequence[str] | None]:
    if parts.x is not None:
        check_finite(parts.x, parts.source, parts.feature_names, parts.batch)
        return parts.x, parts.feature_names
    if parts.num_nodes > max(FEW_NODES, MOST_GAPS * edge_index.size(1)):
        raise InputError(
            f"{parts.source}: {parts.num_nodes} nodes and only {edge_index.size(1) // 2} edges; "
            "leave out isolated nodes, or give features"
        )
    return structural_features(edge_index, parts.num_nodes, coordinates=parts.batch is None)


def _labels(parts: Parts, options: ReadOptions) -> tuple[Tensor, tuple[str, ...]]:
    if parts.class_names is not None:
        return torch.as_tensor(parts.labels), tuple(parts.class_names)
    # Every graph has a node.
    count = parts.num_nodes if parts.batch is None else int(parts.batch[-1]) + 1
    where = parts.label_at or (lambda i: f"{parts.source}, label {i}")
    return encode(parts.labels, count, where, parts.source, options.class_names)


def _graphs(union: Data, batch: Tensor) -> list[Data]:
    """The graphs of a disjoint union whose nodes are in the order of their graphs."""
    count = union.y.numel()
    owner = batch[union.edge_index[1]]
    columns = {
        "x": unbatch(union.x, batch, batch_size=count),
        "edge_index": unbatch_edge_index(union.edge_index, batch, count),
        "y": union.y.split(1),
    }
    for name in ("edge_weight", "edge_kind"):
        if name in union:
            columns[name] = unbatch(union[name], owner, batch_size=count)
    flags = {"directed": True} if "directed" in union else {}
    # Clones, so that keeping or saving one graph does not keep them all.
    return [
        Data(**{key: parts[i].clone() for key, parts in columns.items()}, **flags)
        for i in range(count)
    ]
