"""DisenGCN: channels to which neighbours are routed."""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from vepm.baselines.base import Classifier
from vepm.baselines.nodes import FeatureDropout, NodeBaseline
from vepm.nn import Adjacency, aggregate, edge_dot
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


class DisenGCN(NodeBaseline):
    """Ma et al. (2019): channels, layers that route neighbours to them, and a linear classifier.

    Dropout is for features and for what the classifier reads, not for what lies in between. The
    settings are ours, chosen on Cora's validation nodes.
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
