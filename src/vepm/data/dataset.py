"""Datasets, the form in which graphs reach a model, with labels and columns as it expects them."""

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.canonical import DEGREE_FEATURES, is_sparse
from vepm.data.labels import encode, item_masks
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, TASKS, UNLABELLED, Masks, TaskName

logger = logging.getLogger("vepm")

_MOST_LISTED = 8


@dataclass(frozen=True, eq=False)
class Dataset:
    """Graphs, checked and in canonical form, with the names behind the numbers.

    Every graph has ``x`` float32 [N, F]; ``edge_index`` int64 [2, E] with both directions of every
    edge, no self-loops, no duplicates, sorted by destination and then source; ``y`` int64, [N] for
    node tasks and [1] for graph tasks, -1 where unlabelled. Graphs of node tasks have boolean
    ``train_mask``, ``val_mask`` and ``test_mask`` [N] of labelled nodes. Weighted edges have
    ``edge_weight`` float32 [E], positive and the same in both directions; ``directed`` graphs only
    the directions that exist. ``edge_kind`` [E, R], which models never see, are kinds of edges.

    Args:
        name: what to call the dataset in reports.
        task: ``"node"`` (one graph, labels on nodes) or ``"graph"`` (labels on graphs).
        graphs: the graphs; exactly one for node tasks.
        num_classes: number of classes; 0 where there are no labels.
        class_names: the label behind each class index.
        feature_names: the names of the columns, if the data have any.
        node_names: those of the nodes of each graph.
        graph_names: those of the graphs.
        kind_names: those of the kinds of edges.
        folds: published (train, test) index pairs over the graphs.
        splits: boolean masks (train, val, test) over nodes or graphs; of several published splits
            of nodes, the graph's own masks are the first.
        source: where the data came from, in words.
        num_positions: how many of the last columns are spectral coordinates of this graph.
        prepared: whether the features are scaled for a model already, as its card does.

    Example:
        >>> from vepm.data import load
        >>> dataset = load("KarateClub")
        >>> dataset.task, dataset.num_classes, dataset.graphs[0].num_nodes
        ('node', 4, 34)
    """

    name: str
    task: TaskName
    graphs: list[Data]
    num_classes: int
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    node_names: tuple[tuple[str, ...], ...] | None = None
    graph_names: tuple[str, ...] | None = None
    folds: tuple[tuple[Tensor, Tensor], ...] | None = None
    splits: tuple[Masks, ...] | None = None
    source: str = ""
    num_positions: int = 0
    prepared: bool = False
    kind_names: tuple[str, ...] | None = None

    @property
    def num_features(self) -> int:
        """Number of feature columns."""
        return int(self.graphs[0].x.size(1))

    @property
    def features(self) -> Tensor:
        """The features of the nodes of all graphs [N, F], possibly sparse."""
        parts = [graph.x for graph in self.graphs]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    @property
    def single_graph(self) -> bool:
        """Whether the dataset is one graph whose nodes are labelled."""
        return TASKS[self.task].single_graph

    @property
    def directed(self) -> bool:
        """Whether ``edge_index`` holds only the directions that exist, not both of every edge."""
        return bool(self.graphs[0].get("directed", False))

    @property
    def weighted(self) -> bool:
        """Whether edges have weights that are used."""
        return "edge_weight" in self.graphs[0]

    @property
    def labels(self) -> Tensor:
        """The class index of every node (node tasks) or graph (graph tasks), -1 if unlabelled."""
        return torch.cat([graph.y.reshape(-1) for graph in self.graphs])

    @property
    def masks(self) -> Masks | None:
        """The training, validation and test masks over :attr:`labels`; None if there are none."""
        if self.single_graph:
            train, val, test = (self.graphs[0][name] for name in MASK_NAMES)
            return train, val, test
        return self.splits[0] if self.splits else None

    @property
    def item_names(self) -> list[str]:
        """The id of everything in :attr:`labels`; its index where the data have no ids."""
        names = (self.node_names or [None])[0] if self.single_graph else self.graph_names
        return list(names or map(str, range(self.labels.numel())))

    def with_labels(self, labels: Tensor) -> "Dataset":
        """The same graphs with other labels, in the order of :attr:`labels`; tensors are shared."""
        graphs = [copy.copy(graph) for graph in self.graphs]
        parts = labels.split([graph.y.numel() for graph in graphs])
        for graph, y in zip(graphs, parts, strict=True):
            graph.y = y.clone()
        return replace(self, graphs=graphs)


def relabelled(
    dataset: Dataset, y: Any, rows: Tensor | None = None, class_names: Sequence[str] | None = None
) -> Dataset:
    """A dataset with other labels ``y`` than its own, in the order of :attr:`Dataset.labels`.

    If ``rows`` are given, ``y`` are the labels of these alone; then the masks of the dataset do not
    hold, and all of them train. ``class_names`` are the classes of a fitted model.

    Example:
        >>> from vepm.data import load, relabelled
        >>> dataset = relabelled(load("KarateClub"), ["left", "right"], torch.tensor([0, 33]))
        >>> dataset.class_names, dataset.graphs[0].train_mask.sum()
        (('left', 'right'), tensor(2))
    """
    name, labels = dataset.name, torch.full_like(dataset.labels, UNLABELLED)
    chosen = torch.arange(labels.numel()) if rows is None else rows
    found = encode(y, len(chosen), lambda i: f"{name}, label {i}", name, class_names)
    labels[chosen], names = found
    given: dict[str, Tensor] = {}
    if rows is None and dataset.masks is not None:
        train, val, test = dataset.masks
        given = {"val_mask": val, "test_mask": test}
        # A train mask derived from the labels is derived again from the new ones.
        if not torch.equal(train, (dataset.labels != UNLABELLED) & ~(val | test)):
            given["train_mask"] = train
    masks, splits = item_masks(given, labels >= 0, name)
    changed = replace(dataset.with_labels(labels), num_classes=len(names), class_names=names)
    if dataset.single_graph:
        changed.graphs[0].update(dict(zip(MASK_NAMES, masks, strict=True)))
        return replace(changed, splits=splits)
    return replace(changed, splits=(masks,) if given else None)


def require_labels(dataset: Dataset) -> None:
    """Refuse a dataset with no labels, or labels of one class: no classifier can learn from it."""
    if dataset.num_classes < 2:
        found = f"no {dataset.task} has a label"
        if dataset.class_names:
            found = f"every labelled {dataset.task} is of class '{dataset.class_names[0]}'"
        raise InputError(
            f"{dataset.name}: {found}; classification needs at least two classes (-1 and empty "
            "cells mean unlabelled); name their column with --label, or detect communities"
        )


def with_columns(dataset: Dataset, names: tuple[str, ...] | None, width: int) -> Dataset:
    """The dataset with the columns that a model was trained on: by name if both have names."""
    given, count = dataset.feature_names, dataset.num_features
    if names is None or given is None:
        if count != width:
            found = f"has {count} features, the model was trained on {width}"
            raise InputError(f"{dataset.name}: {found}; give the same columns in the same order")
        if names != given:
            nameless = "the model has" if names is None else "the data have"
            how = "columns are matched by position; make sure they are in the order of training"
            logger.warning("%s: %s no column names, so %s", dataset.name, nameless, how)
        return replace(dataset, feature_names=names)
    if names == given:
        return dataset
    place = {name: i for i, name in enumerate(given)}
    missing = [name for name in names if name not in place]
    unknown = [name for name in given if name not in set(names)]
    if missing or unknown:
        raise InputError(f"{dataset.name}: {_mismatch(missing, unknown)}")
    order = torch.tensor([place[name] for name in names])
    graphs = [graph.clone() for graph in dataset.graphs]
    for graph in graphs:
        found = graph.x.index_select(1, order)
        graph.x = found.coalesce() if is_sparse(found) else found
    return replace(dataset, graphs=graphs, feature_names=names)


def _mismatch(missing: list[str], unknown: list[str]) -> str:
    if set(DEGREE_FEATURES) <= set(missing):
        return f"the model was trained without features; leave out {listed_names(unknown)}"
    if set(DEGREE_FEATURES) <= set(unknown):
        needed = f"the model needs {listed_names(missing)}"
        return f"the graph has no features, {needed}; add these columns"
    found = {"missing": missing, "unknown to the model": unknown}
    parts = " and ".join(f"{listed_names(names)} {how}" for how, names in found.items() if names)
    differ = "feature columns differ from those of training"
    return f"{differ}: {parts}; give the same columns, in any order"


def listed_names(names: list[str]) -> str:
    """The first few names, for messages."""
    shown = ", ".join(map(repr, names[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    return f"{shown} and {more} more" if more > 0 else shown
