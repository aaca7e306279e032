"""Disentangled graph convolutional networks (Ma et al., 2019)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vepm.baselines.base import NodeBaseline
from vepm.baselines.batches import GraphBatch
from vepm.baselines.fitting import Classifier
from vepm.nn import Adjacency, aggregate, edge_dot


class DisenConv(nn.Module):
    r"""Neighbourhood routing: each neighbour is assigned to the channel that explains its edge.

    .. math:: z_{ik} = \frac{\sigma(W_k^\top x_i + b_k)}{\lVert \cdot \rVert_2}, \quad
        p_{ijk} = \mathrm{softmax}_k (z_{jk}^\top c_{ik} / \tau), \quad
        c_{ik} \leftarrow \frac{z_{ik} + \sum_j p_{ijk} z_{jk}}{\lVert \cdot \rVert_2}

    Args:
        in_channels: width of the input.
        out_channels: total width over all channels.
        num_factors: number of channels K.
        num_iterations: rounds of routing T.
        temperature: sharpness of the routing.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_factors: int,
        num_iterations: int = 6,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.project = nn.Linear(in_channels, out_channels)
        nn.init.xavier_uniform_(self.project.weight)
        self.num_factors, self.num_iterations = num_factors, num_iterations
        self.temperature = temperature

    def forward(self, x: Tensor, edges: Adjacency) -> Tensor:
        """The routed centres of all channels, side by side [N, out_channels]."""
        z = nn.functional.relu(self.project(x)).view(x.size(0), self.num_factors, -1)
        return self.route(nn.functional.normalize(z, dim=2), edges)[0].flatten(1)

    def route(self, z: Tensor, edges: Adjacency) -> tuple[Tensor, Tensor]:
        """Centres [N, K, D], and the share of each edge in each channel [E, K]."""
        centre, share = z, z.new_empty(0)
        for _ in range(self.num_iterations):
            share = torch.softmax(edge_dot(centre, z, edges) / self.temperature, dim=1)
            centre = nn.functional.normalize(z + aggregate(z, edges, share), dim=2)
        return centre, share


class _Network(Classifier):
    def __init__(self, convolutions: list[DisenConv], head: nn.Linear, dropout: float) -> None:
        super().__init__()
        self.convolutions, self.head = nn.ModuleList(convolutions), head
        self.dropout = dropout

    def forward(self, graph: GraphBatch) -> Tensor:
        x = graph.x
        for convolution in self.convolutions:
            x = nn.functional.dropout(convolution(x, graph.adjacency), self.dropout, self.training)
        return self.head(x)


@dataclass(frozen=True, kw_only=True)
class DisenGCN(NodeBaseline):
    """Stacked neighbourhood routing and a linear classifier.

    Args:
        num_factors: channels K of every layer.
        factor_channels: width of each.
        num_layers: routing layers.
        num_iterations: rounds of routing in each.
        temperature: sharpness of the routing.
    """

    name: str = "disengcn"
    epochs: int = 300
    learning_rate: float = 0.01
    weight_decay: float = 5e-3
    dropout: float = 0.5
    patience: int | None = 100
    num_factors: int = 8
    factor_channels: int = 8
    num_layers: int = 3
    num_iterations: int = 6
    temperature: float = 1.0

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        width = self.num_factors * self.factor_channels
        inputs = [in_channels] + [width] * (self.num_layers - 1)
        convolutions = [
            DisenConv(size, width, self.num_factors, self.num_iterations, self.temperature)
            for size in inputs
        ]
        return _Network(convolutions, nn.Linear(width, out_channels), self.dropout)
