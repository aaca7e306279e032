"""The one form in which every graph reaches a model."""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.tasks import MASK_NAMES, TASKS, Masks, TaskName

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

    A node task has one graph with labels on nodes, a graph task labels on graphs. ``class_names``
    are the labels behind class indices, other names those the data have, if any. ``folds`` are
    published (train, test) indices of graphs; ``splits`` masks (train, val, test) over nodes or
    graphs, the first of which are those of the graph. The last ``num_positions`` columns are
    spectral coordinates; ``prepared`` features are at the scale of a model already.

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
        """The features of the nodes of all graphs [N, F], perhaps sparse."""
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


def listed_names(names: list[str]) -> str:
    """The first few names, for messages."""
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return (", ".join(map(repr, names[:_MOST_LISTED])) or "none") + more
