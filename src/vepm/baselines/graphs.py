"""Baselines on graphs: GIN, FactorGCN (Yang et al., 2020), and floors without edges or features."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, relu
from torch_geometric.nn import GINConv, global_add_pool, global_mean_pool

from vepm.baselines.base import PooledBaseline
from vepm.baselines.fitting import Classifier, Labelled
from vepm.kernels.features import dense
from vepm.nn import aggregate
from vepm.training import GraphBatch

POOLING = {"sum": global_add_pool, "mean": global_mean_pool}


def perceptron(in_channels: int, hidden_channels: int) -> nn.Sequential:
    """Two linear layers, each followed by batch norm and ReLU."""
    layers: list[nn.Module] = []
    for width in (in_channels, hidden_channels):
        linear = nn.Linear(width, hidden_channels)
        layers += [linear, nn.BatchNorm1d(hidden_channels), nn.ReLU()]
    return nn.Sequential(*layers)


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


@dataclass(frozen=True, kw_only=True)
class GIN(PooledBaseline):
    """Xu et al. (2019), GIN-0 with two-layer perceptrons.

    Args:
        num_layers: layers, counting the input as one.
    """

    network = _GINNetwork
    name: str = "gin"
    num_layers: int = 5


class _PooledMLP(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "GraphMLP") -> None:
        super().__init__()
        self.body = perceptron(in_channels, settings.hidden_channels)
        self.head = nn.Linear(settings.hidden_channels, out_channels)
        self.pool, self.dropout = POOLING[settings.pooling], settings.dropout

    def forward(self, graph: GraphBatch) -> Tensor:
        pooled = self.pool(self.body(graph.x), graph.batch, graph.num_graphs)
        return self.head(dropout(pooled, self.dropout, self.training))


@dataclass(frozen=True, kw_only=True)
class GraphMLP(PooledBaseline):
    """A perceptron on each node, pooled: what can be done without edges."""

    network = _PooledMLP
    name: str = "graph-mlp"


class FactorConv(nn.Module):
    r"""One layer: split the graph into factor graphs, convolve on each, put the results together.

    .. math:: E_{ije} = \mathrm{sigmoid}(\Psi_e(W h_i, W h_j)), \quad
        h_i^{e} = \sigma\Big(\sum_{j} \frac{E_{ije}}{\sqrt{d_i d_j}} W h_j\Big)

    Every node is also its own neighbour, in every factor in full.

    Args:
        in_channels: width of the input.
        out_channels: total width over all factors.
        num_factors: number of factor graphs.
    """

    def __init__(self, in_channels: int, out_channels: int, num_factors: int) -> None:
        super().__init__()
        self.num_factors = num_factors
        self.project = nn.Linear(in_channels, out_channels)
        self.to_score = nn.Linear(out_channels, num_factors)
        self.from_score = nn.Linear(out_channels, num_factors, bias=False)
        self.norm = nn.BatchNorm1d(out_channels)

    def forward(self, x: Tensor, graph: GraphBatch) -> tuple[Tensor, Tensor]:
        """Node features [N, out_channels] and the factor graphs' edge weights [E, factors]."""
        h = self.project(x)
        source, target = graph.edges.edge_index
        share = torch.sigmoid(self.to_score(h)[target] + self.from_score(h)[source])
        mixed = convolve(h.view(h.size(0), self.num_factors, -1), share, graph)
        return relu(self.norm(mixed.flatten(1))), share


def convolve(h: Tensor, share: Tensor, graph: GraphBatch) -> Tensor:
    """Aggregate h [N, factors, D] on each factor graph, symmetrically normalised by degree."""
    degree = graph.edges.target.bincount(minlength=h.size(0)) + 1
    scale = degree.to(h.dtype).rsqrt().view(-1, 1, 1)
    scaled = h * scale
    return scale * (scaled + aggregate(scaled, graph.edges, share))


class FactorDiscriminator(nn.Module):
    """Tells from a factor graph which factor it is: the factors must differ for it to succeed."""

    def __init__(self, in_channels: int, hidden_channels: int, num_factors: int) -> None:
        super().__init__()
        self.project = nn.Linear(in_channels, hidden_channels)
        self.head = nn.Linear(hidden_channels, num_factors)

    def forward(self, x: Tensor, share: Tensor, graph: GraphBatch) -> Tensor:
        """Cross-entropy of telling every factor graph of every graph."""
        factors = share.size(1)
        same = self.project(x).unsqueeze(1).expand(-1, factors, -1)
        seen = relu(convolve(same, share, graph)).flatten(1)
        pooled = global_mean_pool(seen, graph.batch, graph.num_graphs)
        logits = self.head(pooled.view(graph.num_graphs * factors, -1))
        wanted = torch.arange(factors, device=x.device).repeat(graph.num_graphs)
        return cross_entropy(logits, wanted)


class _FactorNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "FactorGCN") -> None:
        super().__init__()
        widths = [in_channels] + [settings.hidden_channels] * (settings.num_layers - 1)
        factors, pairs = settings.num_factors, list(pairwise(widths))
        self.convolutions = nn.ModuleList(FactorConv(a, b, factors) for a, b in pairs)
        self.discriminators = nn.ModuleList(FactorDiscriminator(a, b, factors) for a, b in pairs)
        self.readout = Readout(widths, out_channels, settings)
        self.settings = settings

    def _layers(self, graph: GraphBatch) -> tuple[list[Tensor], list[Tensor]]:
        layers, shares = [dense(graph.x)], []
        for convolution in self.convolutions:
            x, share = convolution(layers[-1], graph)
            layers.append(x)
            shares.append(share)
        return layers, shares

    def forward(self, graph: GraphBatch) -> Tensor:
        return self.readout(self._layers(graph)[0], graph)

    def losses(self, batch: Labelled) -> tuple[Tensor, Tensor]:
        """Cross-entropy of the labels, and the weighted loss of the discriminators."""
        layers, shares = self._layers(batch.graph)
        pairs = zip(self.discriminators, layers, shares, strict=False)
        losses = [discriminate(x, share, batch.graph) for discriminate, x, share in pairs]
        penalty = self.settings.discriminator_weight * torch.stack(losses).mean()
        logits = self.readout(layers, batch.graph)[batch.rows]
        return cross_entropy(logits, batch.labels), penalty


@dataclass(frozen=True, kw_only=True)
class FactorGCN(PooledBaseline):
    """Stacked factor convolutions, their discriminators, and GIN's readout of every layer.

    Args:
        num_layers: layers, counting the input as one.
        num_factors: factor graphs of every layer; must divide ``hidden_channels``.
        discriminator_weight: weight of the discriminators' loss beside the task's.
    """

    network = _FactorNetwork
    name: str = "factorgcn"
    hidden_channels: int = 64
    num_layers: int = 4
    num_factors: int = 4
    discriminator_weight: float = 0.5
