"""DGCNN (Zhang et al., 2018): nodes in the order of their last channel, read by a 1-D CNN."""

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.nn import SimpleConv, SortAggregation

from vepm.baselines.base import GraphBaseline
from vepm.baselines.fitting import Classifier, Outcome
from vepm.data import Dataset
from vepm.evaluation import Split
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch

FEWEST = 10
"""Nodes that the convolutions over the sorted nodes need."""


@dataclass(frozen=True, kw_only=True)
class SortedBaseline(GraphBaseline):
    """A network that reads equally many nodes of every graph, in an order.

    Args:
        num_nodes: nodes that are read of each graph, ten at least; None is the number that 60 % of
            the graphs have.
    """

    num_nodes: int | None = checked(None, low=FEWEST)

    def fit(self, dataset: Dataset, split: Split, seed: int) -> Outcome:
        """Train a fresh network, once it is known how many nodes to read."""
        if self.num_nodes is None:
            sizes = torch.tensor([float(graph.num_nodes) for graph in dataset.graphs])
            kept = max(FEWEST, int(sizes.quantile(0.4)))
            return replace(self, num_nodes=kept).fit(dataset, split, seed)
        return super().fit(dataset, split, seed)


class _SortedNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "DGCNN") -> None:
        super().__init__()
        kept, hidden = settings.num_nodes or FEWEST, settings.hidden_channels
        widths = [in_channels] + [hidden] * settings.num_layers + [1]
        self.projections = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.mean = SimpleConv("mean", combine_root="self_loop")
        self.sort, total = SortAggregation(kept), sum(widths[1:])
        self.read = nn.Sequential(
            nn.Conv1d(1, 16, total, total),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(16, 32, 5),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * (kept // 2 - 4), 128),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(128, out_channels),
        )

    def forward(self, graph: GraphBatch) -> Tensor:
        layers = [dense(graph.x)]
        for project in self.projections:
            layers.append(self.mean(project(layers[-1]), graph.edges.edge_index).tanh())
        nodes = torch.cat(layers[1:], dim=1)
        rows = self.sort(nodes, graph.batch, dim_size=graph.num_graphs)
        return self.read(rows.unsqueeze(1))


@dataclass(frozen=True, kw_only=True)
class DGCNN(SortedBaseline):
    """Zhang et al. (2018): means over neighbours, nodes sorted by the last layer, and a 1-D CNN.

    Args:
        num_layers: layers of the hidden width; one more gives the channel that sorts.
    """

    network = _SortedNetwork
    name: str = "dgcnn"
    learning_rate: float = checked(1e-3, above=0)
    num_layers: int = checked(3, low=1)
