"""Baselines on graphs, and the simplest: GIN, GAT, and a perceptron without edges."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch_geometric.nn import GINConv, global_add_pool, global_mean_pool, models

from vepm.baselines.base import Classifier, Labelled, scored
from vepm.baselines.neural import NeuralBaseline, Problem
from vepm.data import Dataset
from vepm.data.scaling import standardised
from vepm.evaluation import Curve, Split
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch, GraphStore

EVALUATION_BATCH = 512
POOLING = {"sum": global_add_pool, "mean": global_mean_pool}
FEWEST = 10  # nodes that convolutions over nodes in an order need


class GraphBaseline(NeuralBaseline):
    """A network over many graphs, trained in mini-batches as GIN is; it never stops early.

    The learning rate is halved every ``halve_every`` epochs. Every layer is equally wide.
    """

    task = "graph"
    epochs: int = checked(350, low=1)
    weight_decay: float = checked(0.0, low=0)
    batch_size: int = checked(32, low=1)
    halve_every: int = checked(50, low=1)
    hidden_channels: int = checked(32, low=1)

    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """Graphs, in random mini-batches of about equal size; columns of numbers standardised."""
        scaled, count = standardised(dataset), split.train.numel()
        graphs = GraphStore(scaled.graphs, self.device)

        def labelled(ids: Tensor) -> Labelled:
            labels = dataset.labels[ids].to(self.device, non_blocking=True)
            return Labelled(graphs.select(ids), slice(None), labels)

        def training(generator: torch.Generator) -> Iterable[Labelled]:
            order = torch.randperm(count, generator=generator)
            return map(labelled, split.train[order].tensor_split(-(-count // self.batch_size)))

        batches, known, read = [], {}, 0
        for name, part in scored(split).items():
            batches += [graphs.select(ids) for ids in part.split(EVALUATION_BATCH)]
            rows = torch.arange(read, read + part.numel(), device=self.device)
            known[name] = rows, dataset.labels[part].to(self.device)
            read += part.numel()
        return Problem(training, batches, known, halve_every=self.halve_every)


class PooledBaseline(GraphBaseline):
    """A network over graphs whose nodes are added up or averaged."""

    pooling: str = checked("sum", choices=("sum", "mean"))


class Readout(nn.Module):
    """Class scores from the pooled nodes of every layer, the input's included."""

    def __init__(self, widths: list[int], out_channels: int, settings: PooledBaseline) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(width, out_channels) for width in widths)
        self.pool, self.dropout = POOLING[settings.pooling], settings.dropout

    def forward(self, layers: list[Tensor], graph: GraphBatch) -> Tensor:
        """Scores [G, classes] of the graphs, given the nodes of every layer."""
        scores = []
        for head, x in zip(self.heads, layers, strict=True):
            found = head(self.pool(x, graph.batch, graph.num_graphs))
            scores.append(dropout(found, self.dropout, self.training))
        return torch.stack(scores).sum(dim=0)


class SortedBaseline(GraphBaseline):
    """A network that reads the same number of nodes of every graph, in an order.

    By default it is the number that 60 % of the graphs have, at least ten.
    """

    learning_rate: float = checked(1e-3, above=0)
    num_nodes: int | None = checked(None, low=FEWEST)

    def fit(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, dict[str, Tensor]]:
        """Choose how many nodes to read, if that is open, and train a fresh network."""
        if self.num_nodes is not None:
            return super().fit(dataset, split, seed)
        sizes = torch.tensor([float(graph.num_nodes) for graph in dataset.graphs])
        kept = max(FEWEST, int(sizes.quantile(0.4)))
        return replace(self, num_nodes=kept).fit(dataset, split, seed)


def perceptron(in_channels: int, hidden_channels: int) -> nn.Sequential:
    """Two linear layers, each followed by batch norm and ReLU."""
    layers: list[nn.Module] = []
    for width in (in_channels, hidden_channels):
        linear = nn.Linear(width, hidden_channels)
        layers += [linear, nn.BatchNorm1d(hidden_channels), nn.ReLU()]
    return nn.Sequential(*layers)


class _GINNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "GIN") -> None:
        super().__init__()
        widths = [in_channels] + [settings.hidden_channels] * (settings.num_layers - 1)
        self.convolutions = nn.ModuleList(GINConv(perceptron(a, b)) for a, b in pairwise(widths))
        self.readout = Readout(widths, out_channels, settings)

    def forward(self, graph: GraphBatch) -> Tensor:
        layers = [graph.x]
        for convolution in self.convolutions:
            layers.append(convolution(layers[-1], graph.edges.edge_index))
        return self.readout(layers, graph)


class GIN(PooledBaseline):
    """Xu et al. (2019), GIN-0 with two-layer perceptrons; the input counts as a layer."""

    network = _GINNetwork
    name: str = "gin"
    num_layers: int = 5


class Pooled(Classifier):
    """Class scores from the pooled nodes of a network's last layer."""

    def __init__(self, body: nn.Module, out_channels: int, settings: PooledBaseline) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(settings.hidden_channels, out_channels)
        self.pool, self.dropout = POOLING[settings.pooling], settings.dropout

    def forward(self, graph: GraphBatch) -> Tensor:
        """Scores [G, classes]."""
        edges = () if isinstance(self.body, nn.Sequential) else (graph.edges.edge_index,)
        pooled = self.pool(self.body(dense(graph.x), *edges), graph.batch, graph.num_graphs)
        return self.head(dropout(pooled, self.dropout, self.training))


def _pooled_perceptron(in_channels: int, out_channels: int, settings: "GraphMLP") -> Classifier:
    return Pooled(perceptron(in_channels, settings.hidden_channels), out_channels, settings)


class GraphMLP(PooledBaseline):
    """A perceptron on each node, pooled: what can be done without edges."""

    network = _pooled_perceptron
    name: str = "graph-mlp"


def _pooled_attention(in_channels: int, out_channels: int, settings: "GraphGAT") -> Classifier:
    sizes = in_channels, settings.hidden_channels, settings.num_layers
    body = models.GAT(*sizes, heads=settings.heads, act="elu", jk="cat")
    return Pooled(body, out_channels, settings)


class GraphGAT(PooledBaseline):
    """Veličković et al. (2018) on graphs: layers of attention, joined, pooled and read linearly.

    The number of heads must divide ``hidden_channels``.
    """

    network = _pooled_attention
    name: str = "graph-gat"
    learning_rate: float = checked(0.005, above=0)
    hidden_channels: int = checked(64, low=1)
    num_layers: int = checked(4, low=1)
    heads: int = checked(8, low=1)
