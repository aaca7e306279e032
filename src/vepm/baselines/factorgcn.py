"""FactorGCN: a graph split into factor graphs that can be told apart."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu
from torch_geometric.nn import global_mean_pool

from vepm.baselines.base import Classifier, Labelled
from vepm.baselines.graphs import PooledBaseline, Readout
from vepm.kernels.features import dense
from vepm.nn import aggregate
from vepm.training import GraphBatch


class FactorConv(nn.Module):
    r"""One layer: split the graph into factor graphs, convolve on each, concatenate the results.

    .. math:: E_{ije} = \mathrm{sigmoid}(\Psi_e(W h_i, W h_j)), \quad
        h_i^{e} = \sigma\Big(\sum_{j} \frac{E_{ije}}{\sqrt{d_i d_j}} W h_j\Big)

    Every node is also its own neighbour, in every factor. The width is that of all factors.
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
    """Predicts which factor a factor graph is, which succeeds only if the factors differ."""

    def __init__(self, in_channels: int, hidden_channels: int, num_factors: int) -> None:
        super().__init__()
        self.project = nn.Linear(in_channels, hidden_channels)
        self.head = nn.Linear(hidden_channels, num_factors)

    def forward(self, x: Tensor, share: Tensor, graph: GraphBatch) -> Tensor:
        """Cross-entropy of predicting the factor of every factor graph."""
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


class FactorGCN(PooledBaseline):
    """Yang et al. (2020): stacked factor convolutions, their discriminators, and GIN's readout.

    The input counts as a layer. The number of factors must divide ``hidden_channels``.
    """

    network = _FactorNetwork
    name: str = "factorgcn"
    hidden_channels: int = 64
    num_layers: int = 4
    num_factors: int = 4
    discriminator_weight: float = 0.5
