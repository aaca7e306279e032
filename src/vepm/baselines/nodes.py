"""Baselines on nodes made of PyG's layers: MLP, GCN, GraphSAGE, ChebNet, GAT, label propagation."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import dropout, elu, relu
from torch_geometric.nn import ChebConv, GATConv, GCNConv, LabelPropagation, SAGEConv

from vepm.baselines.base import Baseline, NodeBaseline
from vepm.baselines.fitting import Classifier, single_epoch_curve, with_values
from vepm.data import Dataset
from vepm.data.features import is_sparse
from vepm.evaluation import Curve, Split
from vepm.training import GraphBatch


class FeatureDropout(nn.Module):
    """Dropout of one graph's features, drawn for their non-zero entries alone.

    Drawing for the zeros of a bag of words too would take most of the time of an epoch.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self._filled: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The features [N, F], sparse or not; the same graph's in every call."""
        if not self.training:
            return x
        if is_sparse(x):
            return with_values(x, dropout(x.values(), self.probability))
        entries = x.flatten()
        if self._filled is None:
            self._filled = entries.nonzero().squeeze(1)
        kept = dropout(entries[self._filled], self.probability)
        return torch.zeros_like(entries).index_copy_(0, self._filled, kept).view_as(x)


class TwoLayers(Classifier):
    """Two linear layers, or two of PyG's convolutions, with dropout before each."""

    def __init__(
        self, layers: tuple[nn.Module, nn.Module], dropout: float, act: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.first, self.second = layers
        self.drop, self.dropout, self.act = FeatureDropout(dropout), dropout, act

    def forward(self, graph: GraphBatch) -> Tensor:
        """Class scores [N, classes]."""
        x = self.drop(graph.x)
        edges = () if isinstance(self.first, nn.Linear) else (graph.edges.edge_index,)
        if isinstance(self.first, ChebConv | SAGEConv):
            # The other layers read sparse features faster than a table.
            x = x.to_dense()
        x = self.act(self.first(x, *edges))
        return self.second(dropout(x, self.dropout, self.training), *edges)


@dataclass(frozen=True, kw_only=True)
class TwoLayerBaseline(NodeBaseline):
    """A network of two layers with dropout between them."""

    hidden_channels: int = 64

    @abstractmethod
    def layer(self, in_channels: int, out_channels: int) -> nn.Module:
        """One of the two layers."""

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        width = self.hidden_channels
        layers = self.layer(in_channels, width), self.layer(width, out_channels)
        return TwoLayers(layers, self.dropout, relu)


@dataclass(frozen=True, kw_only=True)
class MLP(TwoLayerBaseline):
    """Two linear layers on the features of each node: what can be done without edges."""

    name: str = "mlp"

    def layer(self, in_channels: int, out_channels: int) -> nn.Module:
        """A linear map."""
        return nn.Linear(in_channels, out_channels)


@dataclass(frozen=True, kw_only=True)
class GCN(TwoLayerBaseline):
    """Kipf and Welling (2017), with their weight decay on the first layer and early stopping."""

    name: str = "gcn"
    patience: int | None = 10
    hidden_channels: int = 16

    def layer(self, in_channels: int, out_channels: int) -> nn.Module:
        """A convolution, whose normalised edges are kept."""
        return GCNConv(in_channels, out_channels, cached=True)

    def decayed(self, model: nn.Module) -> list[Parameter]:
        """The first layer."""
        return list(model.get_submodule("first").parameters())


@dataclass(frozen=True, kw_only=True)
class ChebNet(GCN):
    """Defferrard et al. (2016): two layers of Chebyshev filters, trained as GCN is.

    Args:
        order: highest power of the Laplacian in a filter.
    """

    name: str = "chebnet"
    order: int = 3

    def layer(self, in_channels: int, out_channels: int) -> nn.Module:
        """Filters up to the order."""
        return ChebConv(in_channels, out_channels, self.order + 1)


@dataclass(frozen=True, kw_only=True)
class GraphSAGE(TwoLayerBaseline):
    """Hamilton et al. (2017), without sampling: a node is kept apart from its neighbours' mean."""

    name: str = "sage"
    patience: int | None = 100

    def layer(self, in_channels: int, out_channels: int) -> nn.Module:
        """Means over neighbours."""
        return SAGEConv(in_channels, out_channels)


def _drop_projected(layer: GATConv, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Drop out what neighbours are about to send, once attention has looked at all of it."""
    edge_index, size, messages = inputs
    sent, received = messages["x"]
    sent = dropout(sent, layer.dropout, layer.training)
    return edge_index, size, {**messages, "x": (sent, received)}


@dataclass(frozen=True, kw_only=True)
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
        return TwoLayers((first, second), rate, elu)

    def decayed(self, model: nn.Module) -> list[Parameter]:
        """Everything but the biases, as its authors have it."""
        return [p for name, p in model.named_parameters() if not name.endswith("bias")]


@dataclass(frozen=True, kw_only=True)
class LabelProp(Baseline):
    """Training labels spread along the edges, features unseen; nothing is trained.

    Args:
        num_layers: steps of propagation.
        alpha: share of a node's new score that comes from its neighbours.
    """

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
