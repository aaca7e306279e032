"""Graph convolutions that run K communities side by side; with K = 1 they are GCN and GIN."""

import functools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vepm.kernels.aggregation import Adjacency, EdgeIndex, aggregate, as_adjacency
from vepm.kernels.features import Features

CONVOLUTIONS = ("gcn", "gin", "sage")
NORMALIZATIONS = ("none", "graph", "community", "neighbours")
NEIGHBOUR_TEMPERATURE = 0.5

Inputs = Features | Sequence[Features]


class Propagation(NamedTuple):
    """Weights with which one step of message passing sums neighbours and the node itself."""

    edge: Tensor | None  # weight of each edge in each community [E, K]; None for ones
    loop: Tensor | float = 1.0  # weight of each node's own features, one for all or [N, K]
    sent: Tensor | None = None  # factor of what each node sends, to itself too [N, K]
    received: Tensor | None = None  # factor of what each node receives [N, K]

    def spread(self, x: Tensor, edges: EdgeIndex, own: Tensor | None = None) -> Tensor:
        """Weighted sums of the neighbours' features and the node's own [N, K, D].

        ``own`` is a further factor of a node's own features in each community [K].
        """
        if self.sent is not None:
            x = x * self.sent[..., None]
        total = aggregate(x, edges, self.edge)
        mine = x if own is None else x * own[:, None]
        if isinstance(self.loop, Tensor):
            total = torch.addcmul(total, self.loop[..., None], mine)
        else:
            total = torch.add(total, mine, alpha=self.loop)
        return total if self.received is None else total * self.received[..., None]


EdgeWeights = Tensor | Propagation | None  # what a convolution takes as weights of the edges


def propagation(
    edges: Adjacency, shares: Tensor, normalize: str, degree: Tensor | None = None
) -> Propagation:
    r"""Turn shares of edges, or of their weights, into weights of message passing.

    Args:
        edges: The graph.
        shares: Share of each edge in each community [E, K].
        normalize: ``"none"`` sums the shares as they are (GIN). ``"community"`` is GCN's
            :math:`D^{-1/2} (A + I) D^{-1/2}` of each :math:`A^{(k)}` on its own, so every
            community counts equally at every node. ``"graph"`` takes the degrees of the
            whole graph, so the communities that hold most of a node's edges count most.
            ``"neighbours"`` is a softmax over the shares of a node's edges and its own loop.
        degree: Degree of each node in each community [N, K], if edges are missing here.
    """
    if normalize == "neighbours":
        edge = weighted(edges, torch.exp(shares / NEIGHBOUR_TEMPERATURE))
        loop = math.exp(1 / NEIGHBOUR_TEMPERATURE)
        return Propagation(edge, loop, received=1 / (loop + edges.sum_at_target(edge)))
    shares = weighted(edges, shares)
    if normalize == "none":
        return Propagation(shares)
    if normalize == "graph":
        degree = edges.degree.to(shares.dtype)[:, None]
    elif degree is None:
        degree = edges.sum_at_target(shares)
    scale = (degree + 1).rsqrt()
    return Propagation(shares, sent=scale, received=scale)


def weighted(edges: Adjacency, shares: Tensor) -> Tensor:
    """Shares of the weight of each edge, given shares of the edges [E, K]."""
    if edges.message_weight is None:
        return shares
    return shares * edges.message_weight.to(shares.dtype)


def plain_propagation(edges: Adjacency, like: Tensor, conv: str) -> Propagation:
    """Message passing over the graph as it stands, one head: what GCN and GIN do."""
    if conv != "gin":
        return Propagation(*edges.gcn_weights(like.dtype))
    weight = edges.message_weight
    return Propagation(None if weight is None else weight.to(like.dtype))


class CommunityLinear(nn.Module):
    """K linear maps side by side, each from ``in_channels`` to ``out_channels``."""

    def __init__(self, in_channels: int, out_channels: int, heads: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(heads, out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform weights, zero bias, as PyG's convolutions."""
        _, fan_in, fan_out = self.weight.shape
        bound = math.sqrt(6 / (fan_in + fan_out))
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        """Sizes, as PyG prints them."""
        heads, wide, narrow = self.weight.shape
        return f"{wide}, {narrow}, heads={heads}"

    def forward(self, x: Inputs) -> Tensor:
        """Map [N, in] (the same input to every head) or [N, K, in] to [N, K, out].

        A sequence of inputs stands for their concatenation, without building it.
        """
        heads, width, out = self.weight.shape
        if not isinstance(x, Tensor) or x.dim() == 2:
            parts = x if isinstance(x, Sequence) else [x]
            shared = self.weight.transpose(0, 1).reshape(width, heads * out)
            weights = shared.split([part.size(1) for part in parts])
            y = functools.reduce(torch.add, map(operator.matmul, parts, weights))
            y = y.view(-1, heads, out)
        elif heads == 1:
            y = (x[:, 0] @ self.weight[0])[:, None]
        else:
            y = torch.einsum("nki,kio->nko", x, self.weight)
        return y if self.bias is None else y + self.bias


class CommunityNorm(nn.Module):
    """Batch normalisation of [N, K, D], every channel of every community on its own."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels * heads)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise; a lone node has no spread, so it is measured against running values."""
        norm, flat = self.norm, x.flatten(1)
        if self.training and x.size(0) < 2:
            known = norm.running_mean, norm.running_var, norm.weight, norm.bias
            y = nn.functional.batch_norm(flat, *known, eps=norm.eps)
        else:
            y = norm(flat)
        return y.view_as(x)


class GCNConv(nn.Module):
    r"""K graph convolutions :math:`H^{(k)} = \hat A^{(k)} X W^{(k)} + b^{(k)}`.

    Args:
        in_channels: Input width.
        out_channels: Output width of each head.
        heads: Number of communities K.
        root_weight: Give a node weights of its own instead of a loop, as GraphSAGE does; this helps
            where neighbours are mostly of other classes.

    Example:
        >>> conv = GCNConv(5, 3, heads=2)
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> conv(torch.rand(3, 5), edge_index, torch.rand(4, 2)).shape
        torch.Size([3, 2, 3])
    """

    def __init__(
        self, in_channels: int, out_channels: int, heads: int = 1, root_weight: bool = False
    ) -> None:
        super().__init__()
        sizes = in_channels, out_channels, heads
        self.linear = CommunityLinear(*sizes, bias=False)
        self.bias = nn.Parameter(torch.zeros(heads, out_channels))
        self.root = CommunityLinear(*sizes, bias=False) if root_weight else None

    def reset_parameters(self) -> None:
        """Glorot-uniform weights, zero bias."""
        for own in filter(None, (self.linear, self.root)):
            own.reset_parameters()
        nn.init.zeros_(self.bias)

    def forward(self, x: Inputs, edge_index: EdgeIndex, weights: EdgeWeights = None) -> Tensor:
        """Map [N, in] or [N, K, in] to [N, K, out].

        Edges are in both directions. Their weights [E, K], by default one, are normalised by
        degree as GCN does.
        """
        if not isinstance(weights, Propagation):
            edge_index, weights = _prepared(x, edge_index, weights, self.bias, "gcn")
        if self.root is not None:
            weights = weights._replace(loop=0.0)
        _, narrow, wide = self.linear.weight.shape
        if narrow < wide and isinstance(x, Tensor) and x.dim() == 3:
            # Both are linear, so the sum over edges comes where there is less to sum.
            y: Tensor = self.linear(weights.spread(x, edge_index))
        else:
            y = weights.spread(self.linear(x), edge_index)
        y.add_(self.bias)
        return y if self.root is None else y.add_(self.root(x))


class GINConv(nn.Module):
    r"""K edge-weighted graph isomorphism layers
    :math:`H^{(k)} = \mathrm{MLP}^{(k)}((1 + \epsilon_k) X + A^{(k)} X)`.

    The first map of the MLP is applied before the sum over neighbours, which is the same
    (both are linear) and sums H/K numbers per edge and community instead of the input width.

    Args:
        in_channels: Input width.
        out_channels: Output width of each head, also the width inside its MLP.
        heads: Number of communities K.
    """

    def __init__(self, in_channels: int, out_channels: int, heads: int = 1) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(heads))
        self.first = CommunityLinear(in_channels, out_channels, heads, bias=False)
        self.bias = nn.Parameter(torch.zeros(heads, out_channels))
        self.norm = CommunityNorm(out_channels, heads)
        self.second = CommunityLinear(out_channels, out_channels, heads)

    def reset_parameters(self) -> None:
        """Glorot-uniform weights, zero biases and epsilons."""
        for part in (self.first, self.second, self.norm.norm):
            part.reset_parameters()
        nn.init.zeros_(self.eps)
        nn.init.zeros_(self.bias)

    def forward(self, x: Inputs, edge_index: EdgeIndex, weights: EdgeWeights = None) -> Tensor:
        """Map [N, in] or [N, K, in] to [N, K, out], given weights of the edges [E, K] or None."""
        if not isinstance(weights, Propagation):
            edge_index, weights = _prepared(x, edge_index, weights, self.bias, "gin")
        summed = weights.spread(self.first(x), edge_index, 1 + self.eps) + self.bias
        hidden: Tensor = self.second(torch.relu(self.norm(summed)))
        return hidden


def _prepared(
    x: Inputs, edge_index: EdgeIndex, weights: Tensor | None, like: Tensor, conv: str
) -> tuple[Adjacency, Propagation]:
    """The graph, and the weights of message passing over it that the layer has by default."""
    first = x[0] if isinstance(x, Sequence) else x
    edges = as_adjacency(edge_index, first.size(0))
    if weights is None:
        plain = plain_propagation(edges, like, conv)
        of_heads = plain.edge if plain.edge is None else plain.edge.expand(-1, like.size(0))
        return edges, plain._replace(edge=of_heads)
    return edges, propagation(edges, weights, "community" if conv == "gcn" else "none")


def convolution(conv: str, in_channels: int, out_channels: int, heads: int = 1) -> nn.Module:
    """Build a layer by name: ``"gcn"``, ``"gin"`` or ``"sage"``."""
    require_one_of("conv", conv, CONVOLUTIONS)
    if conv == "gin":
        return GINConv(in_channels, out_channels, heads)
    return GCNConv(in_channels, out_channels, heads, root_weight=conv == "sage")


def require_one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raise a ValueError for a value that an option does not have."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
