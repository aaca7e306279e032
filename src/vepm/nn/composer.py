"""Fourth box: merge the communities' representations into one prediction."""

import itertools
import math

import torch
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool, global_mean_pool

from vepm.kernels.aggregation import Adjacency, EdgeIndex, as_adjacency
from vepm.kernels.dropout import drop
from vepm.nn.convolution import (
    CommunityNorm,
    Propagation,
    convolution,
    plain_propagation,
    require_one_of,
    weighted,
)

COMPOSERS = ("gnn", "weighted", "fc")
POOLINGS = ("sum", "mean")
READOUTS = ("jumping", "last")
OWN_SHARE = 1 / 3  # share of its own state that a node keeps where messages run over weighted parts


class Relevance(nn.Module):
    r"""Message passing over the parts of the graph, each weighted by its relevance.

    .. math:: P = \frac{1}{3} I + \frac{2}{3 K} \sum_k w_k D_k^{-1/2} A^{(k)} D_k^{-1/2}

    with :math:`D_k` the degrees of :math:`A^{(k)}` plus :math:`1 / K`, so that a part of few edges
    counts beside one of many. Weights are positive, start at one and are one on average: a part
    that says nothing about the labels fades. The share of the node itself is fixed: few labels
    would raise it, for its own features are the easiest way to memorise a label.

    Args:
        num_metacommunities: Number of parts K.
    """

    def __init__(self, num_metacommunities: int) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(num_metacommunities))

    @property
    def weight(self) -> Tensor:
        """Weight of each part, one on average [K]."""
        return self.logit.numel() * torch.softmax(self.logit, dim=0)

    def forward(
        self,
        edges: Adjacency,
        edge_weight: Tensor | None,
        degree: Tensor | None = None,
        conv: str = "gcn",
    ) -> Propagation:
        """Weights of message passing as above (``"gcn"``) or summed over neighbours (``"gin"``).

        Given the share of each edge in each part [E, K], and, if edges are missing here, the degree
        of each node in each part [N, K].
        """
        if edge_weight is None:
            raise ValueError('a composer of kind "weighted" needs the shares of the edges')
        shares = weighted(edges, edge_weight)
        weight = self.weight.to(shares.dtype)[:, None]
        if conv == "gin":
            return Propagation(shares @ weight)
        degree = edges.sum_at_target(shares) if degree is None else degree
        scale = (degree + 1 / weight.numel()).rsqrt()
        each = (1 - OWN_SHARE) / weight.numel()
        ends = (scale.index_select(0, end) for end in edges.edge_index)
        return Propagation(math.prod(ends, start=shares) @ (each * weight), OWN_SHARE)


class NodeComposer(nn.Module):
    r"""Class scores of every node.

    .. math:: H_V = \mathrm{GNN}_\theta(\Vert_k H^{(k)}, A)

    The scores may then be propagated further, always drawn back to their first values, as in APPNP:
    :math:`H \leftarrow (1 - \alpha) \hat A H + \alpha H_V`.

    Args:
        in_channels: Width of the concatenated community embeddings.
        out_channels: Number of classes.
        kind: ``"gnn"`` as above; ``"weighted"`` for a GNN over the parts of the edges, each
            weighted by its relevance; ``"fc"`` for one linear layer that ignores the graph.
        num_metacommunities: Parts of the edges, for ``"weighted"``.
        num_layers: Convolutions, the last of which gives the scores.
        conv: ``"gcn"``, ``"gin"`` or ``"sage"``.
        hops: Propagation steps of the scores; each adds a neighbourhood and no weights.
        teleport: Share :math:`\alpha` of its own first scores that a node keeps in each step.
        dropout: Dropout of each layer's input.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kind: str = "gnn",
        num_metacommunities: int = 1,
        num_layers: int = 1,
        conv: str = "gcn",
        hops: int = 0,
        teleport: float = 0.1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_one_of("kind", kind, COMPOSERS)
        self.conv = conv
        self.hops, self.teleport, self.dropout = hops, teleport, dropout
        self.relevance = Relevance(num_metacommunities) if kind == "weighted" else None
        self.dense = nn.Linear(in_channels, out_channels) if kind == "fc" else None
        widths = [*[in_channels] * (0 if kind == "fc" else num_layers), out_channels]
        self.layers = nn.ModuleList(
            convolution(conv, wide, narrow) for wide, narrow in itertools.pairwise(widths)
        )

    def forward(
        self, h: Tensor, edge_index: EdgeIndex, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Scores [N, classes] from concatenated embeddings [N, H] and shares of edges [E, K]."""
        edges = as_adjacency(edge_index, h.size(0))
        if self.dense is not None:
            h = self.dense(drop(h, self.dropout, self.training))
        weights, walk = self.propagations(edges, h, edge_weight)
        for i, layer in enumerate(self.layers):
            h = drop(torch.relu(h) if i else h, self.dropout, self.training)
            h = layer(h, edges, weights).squeeze(1)
        start = h
        for _ in range(self.hops):
            h = self.walk(h, start, edges, walk)
        return h

    def propagations(
        self,
        edges: Adjacency,
        h: Tensor,
        edge_weight: Tensor | None = None,
        degree: Tensor | None = None,
    ) -> tuple[Propagation, Propagation]:
        """Weights of message passing for the convolutions, and for the propagation of scores."""
        if self.relevance is None:
            return plain_propagation(edges, h, self.conv), plain_propagation(edges, h, "gcn")
        walk = self.relevance(edges, edge_weight, degree)
        return walk if self.conv != "gin" else self.relevance(edges, edge_weight, conv="gin"), walk

    def walk(self, h: Tensor, start: Tensor, edges: Adjacency, weights: Propagation) -> Tensor:
        """Scores [N, classes] after one more step of propagation."""
        return torch.lerp(weights.spread(h[:, None], edges).squeeze(1), start, self.teleport)


class GraphComposer(nn.Module):
    r"""Embedding of every graph, from GIN layers over the plain graph and pooling.

    Args:
        in_channels: Width of the concatenated community embeddings.
        skip_channels: Widths of earlier node states that the jumping-knowledge readout reads.
        out_channels: Number of classes.
        pooling: ``"sum"`` or ``"mean"`` over the nodes of a graph.
        readout: ``"jumping"`` adds up a linear reading of every layer's pooled state, as GIN
            does; ``"last"`` reads the last only.

    The other arguments are those of :class:`NodeComposer`; dropout is applied to each reading.
    """

    def __init__(
        self,
        in_channels: int,
        skip_channels: list[int],
        out_channels: int,
        *,
        kind: str = "gnn",
        num_metacommunities: int = 1,
        num_layers: int = 2,
        conv: str = "gin",
        pooling: str = "sum",
        readout: str = "jumping",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_one_of("kind", kind, COMPOSERS)
        require_one_of("pooling", pooling, POOLINGS)
        require_one_of("readout", readout, READOUTS)
        self.conv, self.dropout = conv, dropout
        self.pool = global_add_pool if pooling == "sum" else global_mean_pool
        self.relevance = Relevance(num_metacommunities) if kind == "weighted" else None
        self.dense = nn.Linear(in_channels, in_channels) if kind == "fc" else None
        depth = 0 if kind == "fc" else num_layers
        self.layers = nn.ModuleList(
            convolution(conv, in_channels, in_channels) for _ in range(depth)
        )
        self.norms = nn.ModuleList(CommunityNorm(in_channels, 1) for _ in range(depth))
        composed = [in_channels] * (depth + (kind == "fc"))
        read = [*skip_channels, *composed] if readout == "jumping" else composed[-1:]
        self.readings = nn.ModuleList(nn.Linear(width, out_channels) for width in read)

    def forward(
        self,
        h: Tensor,
        edge_index: EdgeIndex,
        skips: list[Tensor],
        batch: Tensor,
        num_graphs: int,
        edge_weight: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Scores [G, classes] and the pooled state they are read from [G, sum of widths]."""
        states = list(skips)
        if self.dense is not None:
            states.append(torch.relu(self.dense(h)))
        edges = as_adjacency(edge_index, h.size(0))
        if self.relevance is None:
            weights = plain_propagation(edges, h, self.conv)
        else:
            weights = self.relevance(edges, edge_weight, conv=self.conv)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = torch.relu(norm(layer(h, edges, weights).squeeze(1)))
            states.append(h)
        pooled = [self.pool(s, batch, num_graphs) for s in states[-len(self.readings) :]]
        scores = sum(
            drop(read(state), self.dropout, self.training)
            for read, state in zip(self.readings, pooled, strict=True)
        )
        assert isinstance(scores, Tensor)
        return scores, torch.cat(pooled, dim=1)
