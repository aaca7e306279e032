"""DisenGCN (Ma et al., 2019): neighbours are routed to the channel that explains their edge."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from vepm.baselines.base import NodeBaseline
from vepm.baselines.fitting import Classifier
from vepm.nn import Adjacency, aggregate, edge_dot
from vepm.training import GraphBatch


def unit_length(x: Tensor) -> Tensor:
    """Channels x [N, K, D] scaled to unit length; zeros stay zero, with a finite gradient."""
    length = x.norm(dim=2, keepdim=True)
    return x / torch.where(length > 1e-6, length, 1.0)


class DisenConv(nn.Module):
    r"""Neighbourhood routing: each neighbour is assigned to the channel that explains its edge.

    .. math:: p_{ijk} = \mathrm{softmax}_k (x_{jk}^\top c_{ik} / \tau), \quad
        c_{ik} \leftarrow \frac{x_{ik} + \sum_j p_{ijk} x_{jk}}{\lVert \cdot \rVert_2}

    Args:
        num_iterations: rounds of routing T.
        temperature: sharpness of the routing.
    """

    def __init__(self, num_iterations: int = 6, temperature: float = 1.0) -> None:
        super().__init__()
        self.num_iterations, self.temperature = num_iterations, temperature

    def forward(self, x: Tensor, edges: Adjacency) -> tuple[Tensor, Tensor]:
        """Centres [N, K, D] of channels x [N, K, D], and each edge's share in each [E, K]."""
        centre, share = x, x.new_empty(0)
        for _ in range(self.num_iterations):
            share = torch.softmax(edge_dot(centre, x, edges) / self.temperature, dim=1)
            centre = unit_length(x + aggregate(x, edges, share))
        return centre, share


class _DisenNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "DisenGCN") -> None:
        super().__init__()
        width = settings.num_factors * settings.factor_channels
        self.project, self.head = nn.Linear(in_channels, width), nn.Linear(width, out_channels)
        for layer in (self.project, self.head):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.routing = DisenConv(settings.num_iterations, settings.temperature)
        self.settings = settings

    def forward(self, graph: GraphBatch) -> Tensor:
        x = self.project(graph.x).relu()
        x = unit_length(x.view(x.size(0), self.settings.num_factors, -1))
        for _ in range(self.settings.num_layers):
            x = self.routing(x, graph.edges)[0].relu()
            x = dropout(x, self.settings.dropout, self.training)
        return self.head(x.flatten(1))


@dataclass(frozen=True, kw_only=True)
class DisenGCN(NodeBaseline):
    """A projection into channels, layers of neighbourhood routing, and a linear classifier.

    Channels are projected and scaled to unit length once, before the first layer. Later layers
    route what the one before them found, after ReLU and dropout; scaled to unit length again,
    what was dropped would be made up for. The settings, for Cora, are those of the rerun of Ko
    and Jung (2021).

    Args:
        num_factors: channels K.
        factor_channels: width of each.
        num_layers: routing layers.
        num_iterations: rounds of routing in each.
        temperature: sharpness of the routing.
    """

    network = _DisenNetwork
    name: str = "disengcn"
    learning_rate: float = 0.03
    weight_decay: float = 0.004
    dropout: float = 0.6
    patience: int | None = 100
    row_normalize: bool = False
    num_factors: int = 4
    factor_channels: int = 16
    num_layers: int = 4
    num_iterations: int = 7
    temperature: float = 1.0
