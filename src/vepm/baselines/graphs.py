"""Baselines on graphs: GIN, and floors that see no edges or nothing but sizes."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch_geometric.nn import GINConv

from vepm.baselines.base import Baseline, GraphBaseline
from vepm.baselines.batches import GraphBatch
from vepm.baselines.fitting import Classifier
from vepm.baselines.nodes import single_epoch_curve
from vepm.data.dataset import Dataset
from vepm.evaluation import Curve, Split


def pool(x: Tensor, graph: GraphBatch, how: str) -> Tensor:
    """The sum or mean of the nodes of each graph [G, D]."""
    total = x.new_zeros(graph.num_graphs, x.size(1)).index_add(0, graph.batch, x)
    if how == "sum":
        return total
    return total / graph.batch.bincount(minlength=graph.num_graphs).clamp(min=1).unsqueeze(1)


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


class _GINNetwork(Classifier):
    """Class scores are read from the pooled nodes of every layer, the input's included."""

    def __init__(self, widths: list[int], out_channels: int, pooling: str, dropout: float) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(GINConv(perceptron(a, b)) for a, b in pairwise(widths))
        self.heads = nn.ModuleList(nn.Linear(width, out_channels) for width in widths)
        self.pooling, self.dropout = pooling, dropout

    def forward(self, graph: GraphBatch) -> Tensor:
        layers = [graph.x]
        for convolution in self.convolutions:
            layers.append(convolution(layers[-1], graph.edge_index))
        scores = [
            nn.functional.dropout(head(pool(x, graph, self.pooling)), self.dropout, self.training)
            for head, x in zip(self.heads, layers, strict=True)
        ]
        return torch.stack(scores).sum(dim=0)


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
        self.pooling, self.dropout = pooling, dropout

    def forward(self, graph: GraphBatch) -> Tensor:
        pooled = pool(self.body(graph.x), graph, self.pooling)
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

    def curve(self, dataset: Dataset, split: Split, seed: int) -> Curve:
        """Fit, then score once."""
        sizes = np.array([[g.x.size(0), g.edge_index.size(1) / 2] for g in dataset.graphs])
        sizes = np.concatenate([sizes, np.log1p(sizes)], axis=1)
        labels = dataset.labels
        train = split.train.numpy()
        model = make_pipeline(StandardScaler(), LogisticRegression(C=self.C, max_iter=1000))
        model.fit(sizes[train], labels[split.train].numpy())
        return single_epoch_curve(torch.from_numpy(model.predict(sizes)), labels, split)
