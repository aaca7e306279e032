"""Baselines on graphs made of PyG's layers: GIN, GAT, and a floor without edges."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import dropout
from torch_geometric.nn import GINConv, models

from vepm.baselines.base import Classifier
from vepm.baselines.graph_level import POOLING, PooledBaseline, Readout
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch


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
