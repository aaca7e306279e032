"""Baselines on nodes with layers of their own, after Ma et al. (2019) and Feng et al. (2020)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from vepm.baselines.base import NodeBaseline
from vepm.baselines.fitting import Classifier, Labelled
from vepm.baselines.nodes import FeatureDropout
from vepm.kernels.features import dense
from vepm.nn import Adjacency, aggregate, edge_dot
from vepm.schema import checked
from vepm.training import GraphBatch


def unit_length(x: Tensor) -> Tensor:
    """Channels x [N, K, D] scaled to unit length; zeros stay zero, with a finite gradient."""
    length = x.norm(dim=2, keepdim=True)
    return x / torch.where(length > 1e-6, length, 1.0)


class DisenConv(nn.Module):
    r"""Neighbourhood routing: each neighbour is assigned to the channel that explains its edge.

    .. math:: z_{ik} = \frac{x_{ik}}{\lVert x_{ik} \rVert_2}, \quad
        p_{ijk} = \mathrm{softmax}_k (z_{jk}^\top c_{ik} / \tau), \quad
        c_{ik} \leftarrow \frac{z_{ik} + \sum_j p_{ijk} z_{jk}}{\lVert \cdot \rVert_2}

    Args:
        num_iterations: rounds of routing T.
        temperature: sharpness of the routing.
    """

    def __init__(self, num_iterations: int = 6, temperature: float = 1.0) -> None:
        super().__init__()
        self.num_iterations, self.temperature = num_iterations, temperature

    def forward(self, x: Tensor, edges: Adjacency) -> tuple[Tensor, Tensor]:
        """Centres [N, K, D] of channels x [N, K, D], and each edge's share in each [E, K]."""
        z = unit_length(x)
        centre, share = z, z.new_empty(0)
        for _ in range(self.num_iterations):
            share = torch.softmax(edge_dot(centre, z, edges) / self.temperature, dim=1)
            centre = unit_length(z + aggregate(z, edges, share))
        return centre, share


class _DisenNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "DisenGCN") -> None:
        super().__init__()
        width = settings.num_factors * settings.factor_channels
        self.project = nn.Linear(in_channels, width)
        # On row-normalised words a random bias would outweigh the words themselves.
        nn.init.zeros_(self.project.bias)
        self.routing = DisenConv(settings.num_iterations, settings.temperature)
        self.head = nn.Linear(width, out_channels)
        self.drop = FeatureDropout(settings.dropout)
        self.settings = settings

    def forward(self, graph: GraphBatch) -> Tensor:
        x = self.project(self.drop(graph.x)).relu()
        x = x.view(x.size(0), self.settings.num_factors, -1)
        for _ in range(self.settings.num_layers):
            x = self.routing(x, graph.edges)[0]
        return self.head(dropout(x.flatten(1), self.settings.dropout, self.training))


@dataclass(frozen=True, kw_only=True)
class DisenGCN(NodeBaseline):
    """A projection into channels, layers of neighbourhood routing, and a linear classifier.

    Channels are projected once, before the first layer; later layers route what the one before
    them found. Features are dropped out, and so is what the classifier reads, but not in between.
    The settings are ours, chosen on Cora's validation nodes.

    Args:
        num_factors: channels K.
        factor_channels: width of each.
        num_layers: routing layers.
        num_iterations: rounds of routing in each.
        temperature: sharpness of the routing.
    """

    network = _DisenNetwork
    name: str = "disengcn"
    weight_decay: float = 0.03
    dropout: float = 0.7
    patience: int | None = 100
    row_normalize: bool = False
    num_factors: int = 4
    factor_channels: int = 16
    num_layers: int = 6
    num_iterations: int = 3
    temperature: float = 1.0


def normalised_adjacency(graph: GraphBatch) -> Tensor:
    """Sparse matrix [N, N] of a graph convolution, self-loops included."""
    size = (graph.edges.num_nodes,) * 2
    ends, weight = gcn_norm(graph.edges.edge_index, None, size[0])
    return torch.sparse_coo_tensor(ends.flip(0), weight, size, check_invariants=False).coalesce()


def mean_of_powers(x: Tensor, matrix: Tensor, order: int) -> Tensor:
    r"""Features averaged over neighbourhoods of all sizes up to the order.

    .. math:: \frac{1}{K + 1} \sum_{k=0}^{K} \hat A^k X, \quad
        \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}
    """
    total = power = x
    for _ in range(order):
        power = matrix @ power
        total = total + power
    return total / (order + 1)


def disagreement(probabilities: Tensor, temperature: float) -> Tensor:
    """Mean squared distance of passes [S, N, classes] from their sharpened mean."""
    mean = probabilities.mean(0).pow(1 / temperature)
    target = (mean / mean.sum(1, keepdim=True)).detach()
    return (probabilities - target).square().sum(2).mean()


class _GrandNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "GRAND") -> None:
        super().__init__()
        widths = (in_channels, settings.hidden_channels)
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(width) if settings.batch_norm else nn.Identity() for width in widths
        )
        self.first = nn.Linear(*widths)
        self.second = nn.Linear(settings.hidden_channels, out_channels)
        self.settings = settings
        self._matrix: Tensor | None = None

    def forward(self, graph: GraphBatch) -> Tensor:
        """Class scores [N, classes]; the same graph's in every call."""
        if self._matrix is None:
            self._matrix = normalised_adjacency(graph)
        chosen, x = self.settings, dense(graph.x).to_dense()
        kept = torch.full((x.size(0), 1), 1 - chosen.node_dropout, device=x.device)
        x = x * (torch.bernoulli(kept) if self.training else kept)
        x = mean_of_powers(x, self._matrix, chosen.order)
        x = dropout(self.norms[0](x), chosen.input_dropout, self.training)
        x = self.norms[1](self.first(x).relu())
        return self.second(dropout(x, chosen.dropout, self.training))

    def losses(self, batch: Labelled) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy of the passes, and how far they are from agreeing on all nodes."""
        passes = torch.stack([self(batch.graph) for _ in range(self.settings.passes)])
        losses = [cross_entropy(one[batch.rows], batch.labels) for one in passes]
        apart = disagreement(passes.softmax(2), self.settings.temperature)
        return torch.stack(losses).mean(), self.settings.consistency_weight * apart


@dataclass(frozen=True, kw_only=True)
class GRAND(NodeBaseline):
    """Whole nodes dropped, features propagated, and a perceptron whose passes should agree.

    Args:
        epochs: how many at most.
        hidden_channels: width of the perceptron.
        order: highest power of the adjacency in the mean.
        node_dropout: probability that a node's features are dropped before propagation.
        input_dropout: dropout of the propagated features.
        passes: stochastic passes of a step.
        consistency_weight: weight of their disagreement.
        temperature: of the mean prediction they should agree on; below one sharpens it.
        batch_norm: normalise the inputs of both layers.
    """

    network = _GrandNetwork
    name: str = "grand"
    epochs: int = checked(1500, low=1)
    patience: int | None = 200
    hidden_channels: int = checked(32, low=1)
    order: int = checked(8, low=0)
    node_dropout: float = checked(0.5, low=0, below=1)
    input_dropout: float = checked(0.5, low=0, below=1)
    passes: int = checked(4, low=1)
    consistency_weight: float = checked(1.0, low=0)
    temperature: float = checked(0.5, above=0)
    batch_norm: bool = False
