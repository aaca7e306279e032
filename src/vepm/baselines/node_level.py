"""Networks over the nodes of one graph, and their features, which may be sparse."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, normalize
from torch_geometric.nn import ChebConv, SAGEConv

from vepm.baselines.base import Classifier, Labelled, scored
from vepm.baselines.neural import NeuralBaseline, Problem
from vepm.data import Dataset
from vepm.data.canonical import is_sparse
from vepm.evaluation import Split
from vepm.training import GraphBatch, single_graph


class NodeBaseline(NeuralBaseline):
    """A network over one graph, trained in full batches.

    It stops when for ``patience`` epochs validation accuracy stayed below its best and the loss
    above its lowest. Features are scaled to unit sum for each node first if ``row_normalize``.
    """

    task = "node"
    patience: int | None = None
    row_normalize: bool = True

    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """Nodes of one graph, in full batches."""
        x, device = dataset.graphs[0].x, self.device
        # The features stay one tensor: PyG's layers take no other kind.
        x = (unit_rows(x) if self.row_normalize else x).to(device)
        graph = replace(single_graph(dataset.graphs[0], device), x=x)
        parts, y = {"train": split.train} | scored(split), dataset.labels
        known = {name: (rows.to(device), y[rows].to(device)) for name, rows in parts.items()}
        train = Labelled(graph, *known.pop("train"))
        return Problem(lambda _: [train], [graph], known, patience=self.patience)


class FeatureDropout(nn.Module):
    """Dropout of one graph's features [N, F], drawn for their non-zero entries alone.

    Drawing for the zeros of a bag of words too would take most of the time of an epoch.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self._entries: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The features, sparse or not; the same graph's in every call."""
        if not self.training:
            return x
        if self._entries is None:
            self._entries = x if is_sparse(x) else x.to_sparse()
        kept = with_values(self._entries, dropout(self._entries.values(), self.probability))
        return kept if is_sparse(x) else kept.to_dense()


class TwoLayers(Classifier):
    """Two linear layers, or two of PyG's convolutions, with dropout before each."""

    def __init__(
        self, first: nn.Module, second: nn.Module, rate: float, act: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.drop, self.dropout, self.act = FeatureDropout(rate), rate, act

    def forward(self, graph: GraphBatch) -> Tensor:
        """Scores [N, classes]."""
        x = self.drop(graph.x)
        edges = () if isinstance(self.first, nn.Linear) else (graph.edges.edge_index,)
        if isinstance(self.first, ChebConv | SAGEConv):
            # The other layers read sparse features faster than a table.
            x = x.to_dense()
        x = self.act(self.first(x, *edges))
        return self.second(dropout(x, self.dropout, self.training), *edges)


def unit_rows(x: Tensor) -> Tensor:
    """Rows scaled to unit sum, of a table or of sparse features."""
    if not is_sparse(x):
        return normalize(x, p=1.0)
    totals = x.new_zeros(x.size(0)).to_dense().index_add(0, x.indices()[0], x.values().abs())
    return with_values(x, x.values() / totals.clamp_min(1e-12)[x.indices()[0]])


def with_values(x: Tensor, values: Tensor) -> Tensor:
    """Sparse features with other values in the same places."""
    return torch.sparse_coo_tensor(
        x.indices(), values, x.shape, check_invariants=False, is_coalesced=True
    )
