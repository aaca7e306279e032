"""GRAND: nodes dropped at random, and passes that should agree."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from vepm.baselines.base import Classifier, Labelled
from vepm.baselines.nodes import NodeBaseline
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch


def mean_of_powers(x: Tensor, edge_index: Tensor, order: int) -> Tensor:
    r"""Features averaged over powers of the normalised adjacency up to the order K.

    .. math:: \frac{1}{K + 1} \sum_{k=0}^{K} \hat A^k X
    """
    ends, weight = gcn_norm(edge_index, None, x.size(0))
    size = (x.size(0), x.size(0))
    matrix = torch.sparse_coo_tensor(ends, weight, size, check_invariants=False).coalesce()
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
        width = settings.hidden_channels
        norm: type[nn.Module] = nn.BatchNorm1d if settings.batch_norm else nn.Identity
        self.perceptron = nn.Sequential(
            norm(in_channels),
            nn.Dropout(settings.input_dropout),
            nn.Linear(in_channels, width),
            nn.ReLU(),
            norm(width),
            nn.Dropout(settings.dropout),
            nn.Linear(width, out_channels),
        )
        self.settings = settings

    def forward(self, graph: GraphBatch) -> Tensor:
        x = dense(graph.x).to_dense()
        kept = torch.full((x.size(0), 1), 1 - self.settings.node_dropout, device=x.device)
        x = x * (torch.bernoulli(kept) if self.training else kept)
        return self.perceptron(mean_of_powers(x, graph.edges.edge_index, self.settings.order))

    def losses(self, batch: Labelled) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy of the passes, and how far they are from agreeing on all nodes."""
        passes = torch.stack([self(batch.graph) for _ in range(self.settings.passes)])
        losses = [cross_entropy(one[batch.rows], batch.labels) for one in passes]
        apart = disagreement(passes.softmax(2), self.settings.temperature)
        return torch.stack(losses).mean(), self.settings.consistency_weight * apart


class GRAND(NodeBaseline):
    """Feng et al. (2020): nodes dropped, features propagated, and passes that should agree.

    ``node_dropout`` is for whole nodes before the propagation, ``input_dropout`` for single
    features after it. A temperature below one sharpens the mean that the passes should agree on.
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
