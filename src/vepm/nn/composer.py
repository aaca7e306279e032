"""Fourth box: merge what the communities say into one prediction."""

import itertools

import torch
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool, global_mean_pool

from vepm.kernels.aggregation import Adjacency, EdgeIndex, as_adjacency
from vepm.kernels.features import Dropout
from vepm.nn.convolution import CommunityNorm, Propagation, convolution, plain_propagation

COMPOSERS = ("gnn", "fc")
POOLINGS = ("sum", "mean")
READOUTS = ("jumping", "last")


class NodeComposer(nn.Module):
    r"""Class scores of every node.

    .. math:: H_V = \mathrm{GNN}_\theta(\Vert_k H^{(k)}, A)

    The scores may then walk further over the graph, always drawn back to where they began:
    :math:`H \leftarrow (1 - \alpha) \hat A H + \alpha H_V`.

    Args:
        in_channels: Width of the concatenated community embeddings.
        out_channels: Number of classes.
        kind: ``"gnn"`` as above, ``"fc"`` for one linear layer that ignores the graph.
        num_layers: Convolutions, the last of which gives the scores.
        conv: ``"gcn"`` or ``"gin"``.
        hops: Steps that the scores walk; each adds a neighbourhood and no weights.
        teleport: Share :math:`\alpha` of its own first scores that a node keeps in each step.
        dropout: Dropout of each layer's input.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kind: str = "gnn",
        num_layers: int = 1,
        conv: str = "gcn",
        hops: int = 0,
        teleport: float = 0.1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.conv = conv
        self.hops, self.teleport = hops, teleport
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(in_channels, out_channels) if kind == "fc" else None
        widths = [*[in_channels] * (0 if kind == "fc" else num_layers), out_channels]
        self.layers = nn.ModuleList(
            convolution(conv, wide, narrow) for wide, narrow in itertools.pairwise(widths)
        )

    def forward(self, h: Tensor, edge_index: EdgeIndex) -> Tensor:
        """Scores [N, classes] from concatenated embeddings [N, H]."""
        edges = as_adjacency(edge_index, h.size(0))
        if self.dense is not None:
            h = self.dense(self.dropout(h))
        weights = plain_propagation(edges, h, self.conv)
        for i, layer in enumerate(self.layers):
            h = layer(self.dropout(torch.relu(h) if i else h), edges, weights).squeeze(1)
        start, walk = h, plain_propagation(edges, h, "gcn")
        for _ in range(self.hops):
            h = self.walk(h, start, edges, walk)
        return h

    def walk(self, h: Tensor, start: Tensor, edges: Adjacency, weights: Propagation) -> Tensor:
        """Scores [N, classes] one step further."""
        return torch.lerp(weights.spread(h[:, None], edges).squeeze(1), start, self.teleport)


class GraphComposer(nn.Module):
    r"""Embedding of every graph, from GIN layers over the plain graph and pooling.

    Args:
        in_channels: Width of the concatenated community embeddings.
        skip_channels: Widths of earlier node states that the jumping-knowledge readout reads
            too.
        out_channels: Number of classes.
        kind: ``"gnn"``, or ``"fc"`` for one linear layer that ignores the graph.
        num_layers: Convolutions.
        conv: ``"gcn"`` or ``"gin"``.
        pooling: ``"sum"`` or ``"mean"`` over the nodes of a graph.
        readout: ``"jumping"`` adds up a linear reading of every layer's pooled state, as GIN
            does; ``"last"`` reads the last only.
        dropout: Dropout of each reading.
    """

    def __init__(
        self,
        in_channels: int,
        skip_channels: list[int],
        out_channels: int,
        *,
        kind: str = "gnn",
        num_layers: int = 2,
        conv: str = "gin",
        pooling: str = "sum",
        readout: str = "jumping",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.conv = conv
        self.pool = global_add_pool if pooling == "sum" else global_mean_pool
        self.dense = nn.Linear(in_channels, in_channels) if kind == "fc" else None
        depth = 0 if kind == "fc" else num_layers
        self.layers = nn.ModuleList(
            convolution(conv, in_channels, in_channels) for _ in range(depth)
        )
        self.norms = nn.ModuleList(CommunityNorm(in_channels, 1) for _ in range(depth))
        composed = [in_channels] * (depth + (kind == "fc"))
        read = [*skip_channels, *composed] if readout == "jumping" else composed[-1:]
        self.readings = nn.ModuleList(nn.Linear(width, out_channels) for width in read)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        h: Tensor,
        edge_index: EdgeIndex,
        skips: list[Tensor],
        batch: Tensor,
        num_graphs: int,
    ) -> tuple[Tensor, Tensor]:
        """Scores [G, classes] and the pooled state they are read from [G, sum of widths]."""
        states = [*skips, *self._compose(h, edge_index)]
        pooled = [self.pool(s, batch, num_graphs) for s in states[-len(self.readings) :]]
        scores = sum(
            self.dropout(read(state)) for read, state in zip(self.readings, pooled, strict=True)
        )
        assert isinstance(scores, Tensor)
        return scores, torch.cat(pooled, dim=1)

    def _compose(self, h: Tensor, edge_index: EdgeIndex) -> list[Tensor]:
        if self.dense is not None:
            return [torch.relu(self.dense(h))]
        edges = as_adjacency(edge_index, h.size(0))
        weights = plain_propagation(edges, h, self.conv)
        states = []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = torch.relu(norm(layer(h, edges, weights).squeeze(1)))
            states.append(h)
        return states
