"""Third box: one small GNN per metacommunity, each on its own share of the edges."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vepm.kernels.aggregation import EdgeIndex, as_adjacency
from vepm.kernels.dropout import drop_rows, dropout
from vepm.nn.convolution import (
    NORMALIZATIONS,
    CommunityNorm,
    Inputs,
    convolution,
    propagation,
    require_one_of,
)


class CommunityBank(nn.Module):
    r"""K community-specific GNNs, run as one.

    .. math:: H^{(k)} = \mathrm{GNN}^{(k)}_\theta(X^*, A^{(k)})

    Args:
        in_channels: Width of the input :math:`X^*`.
        hidden_channels: Total width H; each community gets H/K of it, rounded down.
        num_metacommunities: Number of communities K.
        num_layers: Convolutions per community.
        conv: ``"gcn"``, ``"gin"`` or ``"sage"``.
        normalize: How shares become message weights; see
            :func:`vepm.nn.convolution.propagation`.
        dropout: Dropout of each layer's input.
        node_dropout: Probability that nothing of a node's input is read in a training pass.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_metacommunities: int,
        *,
        num_layers: int = 1,
        conv: str = "gcn",
        normalize: str = "community",
        dropout: float = 0.0,
        node_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if hidden_channels < num_metacommunities:
            least = f"num_metacommunities ({num_metacommunities}): every community needs a channel"
            raise ValueError(f"hidden_channels ({hidden_channels}) must be at least {least}")
        require_one_of("normalize", normalize, NORMALIZATIONS)
        width = hidden_channels // num_metacommunities
        self.in_channels, self.out_channels = in_channels, width * num_metacommunities
        self.normalize = normalize
        self.dropout, self.node_dropout = dropout, node_dropout
        self.layers = nn.ModuleList(
            convolution(conv, width if i else in_channels, width, num_metacommunities)
            for i in range(num_layers)
        )
        self.norms = nn.ModuleList(
            CommunityNorm(width, num_metacommunities) if conv == "gin" else nn.Identity()
            for _ in range(num_layers)
        )

    def forward(self, inputs: Inputs, edge_index: EdgeIndex, edge_weight: Tensor) -> list[Tensor]:
        """Embeddings [N, K, H/K] after each layer, given shares of the edges [E, K].

        The input :math:`X^*` [N, F] may be given as the parts it is the concatenation of.
        """
        parts = inputs if isinstance(inputs, Sequence) else [inputs]
        edges = as_adjacency(edge_index, parts[0].size(0))
        weights = propagation(edges, edge_weight, self.normalize)
        whole = drop_rows(parts, self.node_dropout, self.training)
        x: Inputs = [dropout(part, self.dropout, self.training) for part in whole]
        states: list[Tensor] = []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            if states:
                x = dropout(states[-1], self.dropout, self.training)
            states.append(torch.relu_(norm(layer(x, edges, weights))))
        return states
