"""Baselines on nodes made of PyG's layers: MLP, GCN, GraphSAGE, ChebNet, GAT, label propagation."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu, relu
from torch_geometric.nn import ChebConv, GATConv, GCNConv, LabelPropagation, SAGEConv

from vepm.baselines.base import Baseline, Classifier, NodeBaseline, single_epoch_curve, with_values
from vepm.data import Dataset
from vepm.data.canonical import is_sparse
from vepm.evaluation import Curve, Split
from vepm.training import GraphBatch


class FeatureDropout(nn.Module):
    """Dropout of one graph's features [N, F], drawn for their non-zero entries alone.

    Drawing for the zeros of a bag of words too would take most of the time of an epoch.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self._filled: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The features, sparse or not; the same graph's in every call."""
        if not self.training:
            return x
        if is_sparse(x):
            return with_values(x, dropout(x.values(), self.probability))
        entries = x.flatten()
        if self._filled is None:
            self._filled = entries.nonzero().squeeze(1)
        kept = dropout(entries[self._filled], self.probability)
        return torch.zeros_like(entries).index_copy_(0, self._filled, kept).view_as(x)


class _TwoLayers(Classifier):
    """Two linear layers, or two of PyG's convolutions, with dropout before each."""

    def __init__(
        self, first: nn.Module, second: nn.Module, rate: float, act: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.drop, self.dropout, self.act = FeatureDropout(rate), rate, act

    def forward(self, graph: GraphBatch) -> Tensor:
        x = self.drop(graph.x)
        edges = () if isinstance(self.first, nn.Linear) else (graph.edges.edge_index,)
        if isinstance(self.first, ChebConv | SAGEConv):
            # The other layers read sparse features faster than a table.
            x = x.to_dense()
        x = self.act(self.first(x, *edges))
        return self.second(dropout(x, self.dropout, self.training), *edges)


class MLP(NodeBaseline):
    """Two linear layers on the features of each node: what can be done without edges."""

    layer: ClassVar[Callable[..., nn.Module]] = nn.Linear
    name: str = "mlp"
    hidden_channels: int = 64

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        width, layer = self.hidden_channels, type(self).layer
        layers = layer(in_channels, width), layer(width, out_channels)
        return _TwoLayers(*layers, self.dropout, relu)


class GraphSAGE(MLP):
    """Hamilton et al. (2017), without sampling: a node is kept apart from its neighbours' mean."""

    layer = SAGEConv
    name: str = "sage"
    patience: int | None = 100


class GCN(MLP):
    """Kipf and Welling (2017), with their weight decay on the first layer and early stopping."""

    layer = partial(GCNConv, cached=True)
    name: str = "gcn"
    patience: int | None = 10
    hidden_channels: int = 16

    def decays(self, name: str) -> bool:
        """The first layer's do."""
        return name.startswith("first.")


class ChebNet(GCN):
    """Defferrard et al. (2016): Chebyshev filters up to an order, trained as GCN is."""

    name: str = "chebnet"
    order: int = 3

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        width, size = self.hidden_channels, self.order + 1
        layers = ChebConv(in_channels, width, size), ChebConv(width, out_channels, size)
        return _TwoLayers(*layers, self.dropout, relu)


def _drop_projected(layer: GATConv, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Drop out what neighbours are about to send, once attention has looked at all of it."""
    edge_index, size, messages = inputs
    sent, received = messages["x"]
    sent = dropout(sent, layer.dropout, layer.training)
    return edge_index, size, {**messages, "x": (sent, received)}


class GAT(NodeBaseline):
    """Veličković et al. (2018): attention over neighbours.

    Dropout is applied where their code applies it: to the features before and after each
    layer's projection, and to the attention. PyG's layer leaves out the second. Heads of the
    first layer are concatenated, those of the second averaged.
    """

    name: str = "gat"
    epochs: int = 1000
    learning_rate: float = 0.005
    dropout: float = 0.6
    patience: int | None = 100
    heads: int = 8
    head_channels: int = 8
    output_heads: int = 1

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        width, rate = self.heads * self.head_channels, self.dropout
        first = GATConv(in_channels, self.head_channels, self.heads, dropout=rate)
        second = GATConv(width, out_channels, self.output_heads, concat=False, dropout=rate)
        for layer in (first, second):
            layer.register_propagate_forward_pre_hook(_drop_projected)
        return _TwoLayers(first, second, rate, elu)

    def decays(self, name: str) -> bool:
        """Everything but the biases, as its authors have it."""
        return not name.endswith("bias")


class LabelProp(Baseline):
    """Training labels spread along the edges, features unseen; nothing is trained."""

    task = "node"
    name: str = "label-propagation"
    num_layers: int = 50
    alpha: float = 0.9

    def train(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, Tensor]:
        """Propagate, then score once."""
        labels = dataset.labels
        known = torch.zeros(labels.numel(), dataset.num_classes)
        known[split.train, labels[split.train]] = 1.0
        propagate = LabelPropagation(self.num_layers, self.alpha)
        scores = propagate(known, dataset.graphs[0].edge_index)
        return single_epoch_curve(scores.argmax(dim=1), labels, split), scores[split.test]
