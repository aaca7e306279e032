"""Factorizable graph convolutional networks (Yang et al., 2020)."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.nn import global_mean_pool

from vepm.baselines.base import GraphBaseline
from vepm.baselines.fitting import Classifier, Labelled
from vepm.baselines.graphs import Readout
from vepm.kernels.features import dense
from vepm.nn import aggregate
from vepm.training import GraphBatch


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
        return nn.functional.relu(self.norm(mixed.flatten(1))), share


def convolve(h: Tensor, share: Tensor, graph: GraphBatch) -> Tensor:
    """Aggregate h [N, factors, D] on each factor graph, symmetrically normalised by degree."""
    degree = graph.edges.target.bincount(minlength=h.size(0)) + 1
    scale = degree.to(h.dtype).rsqrt().view(-1, 1, 1)
    scaled = h * scale
    return scale * (scaled + aggregate(scaled, graph.edges, share))


class FactorDiscriminator(nn.Module):
    """Tells from a factor graph which factor it is: the factors must differ for it to succeed.

    Args:
        in_channels: width of the node features given to it.
        hidden_channels: width of its one graph convolution.
        num_factors: number of factors to tell apart.
    """

    def __init__(self, in_channels: int, hidden_channels: int, num_factors: int) -> None:
        super().__init__()
        self.project = nn.Linear(in_channels, hidden_channels)
        self.head = nn.Linear(hidden_channels, num_factors)

    def forward(self, x: Tensor, share: Tensor, graph: GraphBatch) -> Tensor:
        """Cross-entropy of telling every factor graph of every graph."""
        factors = share.size(1)
        same = self.project(x).unsqueeze(1).expand(-1, factors, -1)
        seen = nn.functional.relu(convolve(same, share, graph)).flatten(1)
        logits = self.head(
            global_mean_pool(seen, graph.batch, graph.num_graphs).view(
                graph.num_graphs * factors, -1
            )
        )
        wanted = torch.arange(factors, device=x.device).repeat(graph.num_graphs)
        return nn.functional.cross_entropy(logits, wanted)


class _Network(Classifier):
    def __init__(self, widths: list[int], out_channels: int, settings: "FactorGCN") -> None:
        super().__init__()
        factors, pairs = settings.num_factors, list(pairwise(widths))
        self.convolutions = nn.ModuleList(FactorConv(a, b, factors) for a, b in pairs)
        self.discriminators = nn.ModuleList(FactorDiscriminator(a, b, factors) for a, b in pairs)
        self.readout = Readout(widths, out_channels, settings.pooling, settings.dropout)
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
        graph = batch.graph
        layers, shares = self._layers(graph)
        losses = [
            discriminator(x, share, graph)
            for discriminator, x, share in zip(self.discriminators, layers, shares, strict=False)
        ]
        penalty = self.settings.discriminator_weight * torch.stack(losses).mean()
        logits = self.readout(layers, graph)[batch.rows]
        return nn.functional.cross_entropy(logits, batch.labels), penalty


@dataclass(frozen=True, kw_only=True)
class FactorGCN(GraphBaseline):
    """Stacked factor convolutions, their discriminators, and GIN's readout of every layer.

    Args:
        num_layers: layers, counting the input as one.
        num_factors: factor graphs of every layer; must divide ``hidden_channels``.
        discriminator_weight: weight of the discriminators' loss beside the task's.
    """

    name: str = "factorgcn"
    hidden_channels: int = 64
    num_layers: int = 4
    num_factors: int = 4
    discriminator_weight: float = 0.5

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        widths = [in_channels] + [self.hidden_channels] * (self.num_layers - 1)
        return _Network(widths, out_channels, self)
