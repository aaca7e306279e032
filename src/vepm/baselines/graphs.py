"""Baselines on graphs: GIN, and floors that see no edges or nothing but sizes."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch_geometric.nn import GINConv, global_add_pool, global_mean_pool

from vepm.baselines.base import Baseline, GraphBaseline
from vepm.baselines.fitting import Classifier
from vepm.baselines.nodes import single_epoch_curve
from vepm.data.dataset import Dataset
from vepm.evaluation import Curve, Split
from vepm.training import GraphBatch

POOLING = {"sum": global_add_pool, "mean": global_mean_pool}


def perceptron(in_channels: int, hidden_channels: int) -> nn.Sequential:
    """Two linear layers, each followed by batch norm and ReLU."""
    return nn.Sequential(
        nn.Linear(in_channels, hidden_channels),
        nn.BatchNorm1d(hidden_channels),
        nn.ReLU(),
        nn.Linear(hidden_channels, hidden_channels),
        nn.BatchNorm1d(hidden_channels),
        nn.ReLU(),
    )


class Readout(nn.Module):
    """Class scores from the pooled nodes of every layer, the input's included."""

    def __init__(self, widths: list[int], out_channels: int, pooling: str, dropout: float) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(width, out_channels) for width in widths)
        self.pool, self.dropout = POOLING[pooling], dropout

    def forward(self, layers: list[Tensor], graph: GraphBatch) -> Tensor:
        """Scores [G, classes] of the graphs, given the nodes of every layer."""
        scores = [
            nn.functional.dropout(
                head(self.pool(x, graph.batch, graph.num_graphs)), self.dropout, self.training
            )
            for head, x in zip(self.heads, layers, strict=True)
        ]
        return torch.stack(scores).sum(dim=0)


class _GINNetwork(Classifier):
    def __init__(self, widths: list[int], out_channels: int, pooling: str, dropout: float) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(GINConv(perceptron(a, b)) for a, b in pairwise(widths))
        self.readout = Readout(widths, out_channels, pooling, dropout)

    def forward(self, graph: GraphBatch) -> Tensor:
        layers = [graph.x]
        for convolution in self.convolutions:
            layers.append(convolution(layers[-1], graph.edges.edge_index))
        return self.readout(layers, graph)


@dataclass(frozen=True, kw_only=True)
class GIN(GraphBaseline):
    """Xu et al. (2019), GIN-0 with two-layer perceptrons.

    Args:
        num_layers: layers, counting the input as one.
    """

    name: str = "gin"
    num_layers: int = 5

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        widths = [in_channels] + [self.hidden_channels] * (self.num_layers - 1)
        return _GINNetwork(widths, out_channels, self.pooling, self.dropout)


class _PooledMLP(Classifier):
    def __init__(self, body: nn.Module, head: nn.Module, pooling: str, dropout: float) -> None:
        super().__init__()
        self.body, self.head = body, head
        self.pool, self.dropout = POOLING[pooling], dropout

    def forward(self, graph: GraphBatch) -> Tensor:
        pooled = self.pool(self.body(graph.x), graph.batch, graph.num_graphs)
        return self.head(nn.functional.dropout(pooled, self.dropout, self.training))


@dataclass(frozen=True, kw_only=True)
class GraphMLP(GraphBaseline):
    """A perceptron on each node, pooled: what can be done without edges."""

    name: str = "graph-mlp"

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        body = perceptron(in_channels, self.hidden_channels)
        head = nn.Linear(self.hidden_channels, out_channels)
        return _PooledMLP(body, head, self.pooling, self.dropout)


@dataclass(frozen=True, kw_only=True)
class SizeOnly(Baseline):
    """Logistic regression on the numbers of nodes and edges of a graph, and on nothing else.

    Args:
        C: inverse strength of the regularisation.
    """

    task = "graph"
    name: str = "size"
    C: float = 1.0

    def train(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, Tensor]:
        """Fit, then score once."""
        sizes = np.array([[g.x.size(0), g.edge_index.size(1) / 2] for g in dataset.graphs])
        sizes = np.concatenate([sizes, np.log1p(sizes)], axis=1)
        labels = dataset.labels
        train = split.train.numpy()
        model = make_pipeline(StandardScaler(), LogisticRegression(C=self.C, max_iter=1000))
        model.fit(sizes[train], labels[split.train].numpy())
        found = torch.zeros(len(labels), dataset.num_classes, dtype=torch.double)
        found[:, model.classes_] = torch.from_numpy(model.predict_proba(sizes))
        return single_epoch_curve(found.argmax(dim=1), labels, split), found[split.test]
