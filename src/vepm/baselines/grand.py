"""Graph random neural networks (Feng et al., 2020)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from vepm.baselines.base import NodeBaseline
from vepm.baselines.fitting import Classifier, Labelled
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch


def normalised_adjacency(graph: GraphBatch) -> Tensor:
    """Sparse matrix [N, N] of a graph convolution, self-loops included."""
    count = graph.edges.num_nodes
    (source, target), weight = gcn_norm(graph.edges.edge_index, None, count)
    ends = torch.stack([target, source])
    size = (count, count)
    return torch.sparse_coo_tensor(ends, weight, size, check_invariants=False).coalesce()


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


class _Network(Classifier):
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
        x = nn.functional.dropout(self.norms[0](x), chosen.input_dropout, self.training)
        x = self.norms[1](self.first(x).relu())
        return self.second(nn.functional.dropout(x, chosen.dropout, self.training))

    def losses(self, batch: Labelled) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy of the passes, and how far they are from agreeing on all nodes."""
        passes = torch.stack([self(batch.graph) for _ in range(self.settings.passes)])
        loss = torch.stack(
            [nn.functional.cross_entropy(one[batch.rows], batch.labels) for one in passes]
        ).mean()
        apart = disagreement(passes.softmax(2), self.settings.temperature)
        return loss, self.settings.consistency_weight * apart


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

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        return _Network(in_channels, out_channels, self)
