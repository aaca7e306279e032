"""Baselines on nodes, and those made of PyG's layers: MLP, GCN, GraphSAGE, ChebNet, GAT."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu, normalize, relu
from torch_geometric.nn import ChebConv, GATConv, GCNConv, LabelPropagation, SAGEConv

from vepm.baselines.base import Baseline, Classifier, Labelled, scored, single_epoch_curve
from vepm.baselines.neural import NeuralBaseline, Problem
from vepm.data import Dataset
from vepm.data.canonical import is_sparse
from vepm.data.scaling import standardised
from vepm.evaluation import Curve, Split
from vepm.training import GraphBatch, single_graph


class NodeBaseline(NeuralBaseline):
    """A network over one graph, trained in full batches.

    It stops when for ``patience`` epochs validation accuracy stayed below its best and the loss
    above its lowest. Columns of numbers are standardised first; features without any, such as
    words, are scaled to unit sum for each node if ``row_normalize``.
    """

    task = "node"
    patience: int | None = None
    row_normalize: bool = True

    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """Nodes of one graph, in full batches."""
        scaled, device = standardised(dataset), self.device
        x = scaled.graphs[0].x
        # The features stay a tensor, which PyG's layers need.
        x = (unit_rows(x) if self.row_normalize and scaled is dataset else x).to(device)
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


def _two_layers(
    layer: Callable[..., nn.Module], in_channels: int, out_channels: int, settings: "MLP"
) -> Classifier:
    width = settings.hidden_channels
    layers = layer(in_channels, width), layer(width, out_channels)
    return TwoLayers(*layers, settings.dropout, relu)


class MLP(NodeBaseline):
    """Two linear layers on the features of each node: what can be done without edges."""

    network: ClassVar[Callable[..., Classifier]] = partial(_two_layers, nn.Linear)
    name: str = "mlp"
    hidden_channels: int = 64


class GraphSAGE(MLP):
    """Hamilton et al. (2017), without sampling: a node is kept apart from its neighbours' mean."""

    network = partial(_two_layers, SAGEConv)
    name: str = "sage"
    patience: int | None = 100


class GCN(MLP):
    """Kipf and Welling (2017), with their weight decay on the first layer and early stopping."""

    network: ClassVar[Callable[..., Classifier]] = partial(
        _two_layers, partial(GCNConv, cached=True)
    )
    decayed = r"first\..*"
    name: str = "gcn"
    patience: int | None = 10
    hidden_channels: int = 16


def _chebyshev(in_channels: int, out_channels: int, settings: "ChebNet") -> Classifier:
    return _two_layers(partial(ChebConv, K=settings.order + 1), in_channels, out_channels, settings)


class ChebNet(GCN):
    """Defferrard et al. (2016): Chebyshev filters up to an order, trained as GCN is."""

    network = _chebyshev
    name: str = "chebnet"
    order: int = 3


def _drop_projected(layer: GATConv, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Apply dropout to the messages, after attention was computed from all of them."""
    edge_index, size, messages = inputs
    sent, received = messages["x"]
    sent = dropout(sent, layer.dropout, layer.training)
    return edge_index, size, {**messages, "x": (sent, received)}


def _attention(in_channels: int, out_channels: int, settings: "GAT") -> Classifier:
    heads, size, rate = settings.heads, settings.head_channels, settings.dropout
    first = GATConv(in_channels, size, heads, dropout=rate)
    second = GATConv(heads * size, out_channels, settings.output_heads, False, dropout=rate)
    for layer in (first, second):
        layer.register_propagate_forward_pre_hook(_drop_projected)
    return TwoLayers(first, second, rate, elu)


class GAT(NodeBaseline):
    """Veličković et al. (2018): attention over neighbours.

    Dropout is applied where their code applies it: to the features before and after each
    layer's projection, and to the attention. PyG's layer leaves out the second. Heads of the
    first layer are concatenated, those of the second averaged. Biases do not decay.
    """

    network = _attention
    decayed = r".*(?<!bias)"
    name: str = "gat"
    epochs: int = 1000
    learning_rate: float = 0.005
    dropout: float = 0.6
    patience: int | None = 100
    heads: int = 8
    head_channels: int = 8
    output_heads: int = 1


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
