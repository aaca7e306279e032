"""Localised spectral filters (Defferrard et al., 2016)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from vepm.baselines.base import NodeBaseline
from vepm.baselines.fitting import Classifier
from vepm.baselines.nodes import TwoLayers
from vepm.nn import aggregate
from vepm.training import GraphBatch


class ChebConv(nn.Module):
    r"""A polynomial of the graph's Laplacian, in Chebyshev's basis.

    .. math:: Y = \sum_{k=0}^{K} T_k(\hat L) X W_k, \quad
        \hat L = -D^{-1/2} A D^{-1/2}, \quad T_k = 2 \hat L T_{k-1} - T_{k-2}

    Features are projected first and filtered at the output's width, by Clenshaw's recurrence; that
    is the same polynomial, and far less work than filtering wide inputs.

    Args:
        in_channels: width of the input.
        out_channels: width of the output.
        order: highest power K of the Laplacian.
    """

    def __init__(self, in_channels: int, out_channels: int, order: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(order + 1, in_channels, out_channels))
        self.bias = Parameter(torch.zeros(out_channels))
        for block in self.weight:
            nn.init.xavier_uniform_(block)

    def forward(self, x: Tensor, graph: GraphBatch) -> Tensor:
        """Filtered features [N, out_channels]."""
        terms = (x @ self.weight.permute(1, 0, 2).flatten(1)).chunk(self.weight.size(0), dim=1)
        weight = laplacian_weight(graph)
        above, higher = torch.zeros_like(terms[0]), torch.zeros_like(terms[0])
        for term in reversed(terms[1:]):
            above, higher = term + 2 * _filter(above, weight, graph) - higher, above
        return terms[0] + _filter(above, weight, graph) - higher + self.bias


def laplacian_weight(graph: GraphBatch) -> Tensor:
    """Entries [E] of the Laplacian, shifted and scaled so that its spectrum lies in [-1, 1]."""
    source, target = graph.edges.edge_index
    degree = target.bincount(minlength=graph.edges.num_nodes).clamp(min=1)
    scale = degree.to(torch.get_default_dtype()).rsqrt()
    return -scale[source] * scale[target]


def _filter(x: Tensor, weight: Tensor, graph: GraphBatch) -> Tensor:
    return aggregate(x.unsqueeze(1), graph.edges, weight.unsqueeze(1)).squeeze(1)


@dataclass(frozen=True, kw_only=True)
class ChebNet(NodeBaseline):
    """Two layers of Chebyshev filters, trained as GCN is.

    Args:
        hidden_channels: width between the layers.
        order: highest power of the Laplacian in a filter.
    """

    name: str = "chebnet"
    patience: int | None = 10
    hidden_channels: int = 16
    order: int = 3

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        first = ChebConv(in_channels, self.hidden_channels, self.order)
        second = ChebConv(self.hidden_channels, out_channels, self.order)
        return TwoLayers(first, second, nn.ReLU(), self.dropout)

    def decayed(self, model: nn.Module) -> list[Parameter]:
        """The first layer."""
        return list(model.get_submodule("first").parameters())
