"""CapsGNN: graphs as capsules that their nodes agree on."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch_geometric.nn import GCNConv
from torch_geometric.utils import scatter, softmax

from vepm.baselines.base import Classifier, Labelled
from vepm.baselines.graphs import GraphBaseline
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch


def squash(x: Tensor) -> Tensor:
    """Capsules [..., D] with their length s replaced by s^2 / (1 + s^2)."""
    square = x.square().sum(-1, keepdim=True)
    return x * square / (1 + square) / (square + 1e-8).sqrt()


def route(votes: Tensor, owner: Tensor, num_owners: int, num_iterations: int) -> Tensor:
    """Capsules [G, P, D] on which votes of the capsules of their members [N, I, P, D] agree."""
    agreement = votes.new_zeros(votes.shape[:3])
    for left in reversed(range(num_iterations)):
        # Only the last round is differentiated.
        counted = votes if left == 0 else votes.detach()
        share = agreement.softmax(dim=2).unsqueeze(3)
        found = squash(scatter((share * counted).sum(1), owner, dim_size=num_owners))
        agreement = agreement + (found.detach()[owner].unsqueeze(1) * votes.detach()).sum(3)
    return found


class _CapsNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "CapsGNN") -> None:
        super().__init__()
        width, parts, depth = settings.hidden_channels, settings.num_channels, settings.num_layers
        widths = [in_channels] + [width] * depth
        self.convolutions = nn.ModuleList(GCNConv(a, b) for a, b in pairwise(widths))
        capsules, size = depth * parts, width // parts
        self.attend = nn.Sequential(
            nn.Linear(depth * width, width), nn.Tanh(), nn.Linear(width, capsules)
        )
        self.drop = nn.Dropout(settings.dropout)
        # Smaller weights would leave capsules of almost no length after two squashings.
        self.to_graph = nn.Parameter(torch.randn(capsules, settings.num_capsules, size, width))
        self.to_class = nn.Parameter(torch.randn(settings.num_capsules, out_channels, width, width))
        self.settings = settings

    def forward(self, graph: GraphBatch) -> Tensor:
        assert graph.batch is not None
        layers, rounds = [dense(graph.x)], self.settings.num_iterations
        for convolution in self.convolutions:
            layers.append(convolution(layers[-1], graph.edges.edge_index).tanh())
        nodes = self.drop(torch.cat(layers[1:], dim=1))
        weight = softmax(self.attend(nodes), graph.batch, num_nodes=graph.num_graphs)
        primary = nodes.view(*weight.shape, -1) * weight.unsqueeze(2)
        votes = torch.einsum("nid,ipde->nipe", primary, self.to_graph)
        found = route(votes, graph.batch, graph.num_graphs, rounds)
        votes = torch.einsum("gpd,pcde->gpce", found, self.to_class)
        each = torch.arange(graph.num_graphs, device=votes.device)
        return route(votes, each, graph.num_graphs, rounds).norm(dim=2)

    def losses(self, batch: Labelled) -> tuple[Tensor, float]:
        """Margin loss of the lengths of the class capsules; nothing is added."""
        length = self(batch.graph)[batch.rows]
        wanted = one_hot(batch.labels, length.size(1))
        short, long = (0.9 - length).relu().square(), (length - 0.1).relu().square()
        return (wanted * short + 0.5 * (1 - wanted) * long).sum(1).mean(), 0.0


class CapsGNN(GraphBaseline):
    """Xinyi and Chen (2019): convolutions whose channels are capsules, routed by agreement.

    As in their paper, without the reconstruction of the input. Each convolution
    gives a node ``num_channels`` capsules, which must divide ``hidden_channels``; a graph has
    ``num_capsules``, found in ``num_iterations`` rounds of routing.
    """

    network = _CapsNetwork
    name: str = "capsgnn"
    learning_rate: float = checked(1e-3, above=0)
    dropout: float = checked(0.0, low=0, below=1)
    hidden_channels: int = checked(16, low=1)
    num_layers: int = checked(3, low=1)
    num_channels: int = checked(2, low=1)
    num_capsules: int = checked(16, low=1)
    num_iterations: int = checked(3, low=1)
