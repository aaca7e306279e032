"""First box: how strongly each node belongs to each community, with uncertainty."""

import itertools

import torch
from torch import Tensor, nn
from torch.distributions import Weibull

from vepm.kernels.aggregation import EdgeIndex, as_adjacency
from vepm.kernels.dropout import drop
from vepm.kernels.features import Features
from vepm.nn.convolution import CommunityNorm, convolution, plain_propagation, require_one_of
from vepm.nn.posterior import Posterior

SHAPES = ("entry", "node")
# Samples go as (-log u)^(1/shape), which a smaller shape spreads beyond single precision.
SMALLEST_SHAPE = 0.3
SMALLEST_SCALE = 1e-6
# A shape near 2 starts with little noise; a small scale starts with few expected edges.
SHAPE_OFFSET = 1.5
SCALE_OFFSET = -2.0
FLOOR = 0.02  # smallest scale of sparse affiliations: any two nodes are linked at a low rate
# Affiliations to the background are nearly the same for every node and in every draw.
BACKGROUND_SCALE = 0.1
BACKGROUND_SHAPE = 50.0


class CommunityEncoder(nn.Module):
    r"""Weibull posterior of the affiliations, :math:`q(Z \mid A, X)`.

    .. math:: K \,\Vert\, \Lambda = \mathrm{GNN}_\phi(X, A)

    Args:
        in_channels: Width of the node features.
        num_communities: Number of communities C.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of graph convolutions.
        conv: ``"gcn"`` or ``"gin"``.
        shape: Weibull shapes per node and community (``"entry"``) or per ``"node"``.
        batch_norm: Normalise hidden layers; without it pretraining tends to collapse.
        dropout: Dropout of hidden layers; noise here also invites collapse.
        num_background: Number of communities, the last ones, to which all nodes belong equally.
        sparse: Let nodes not belong to a community at all: scales are cut off, not smoothed.
    """

    def __init__(
        self,
        in_channels: int,
        num_communities: int,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        conv: str = "gcn",
        shape: str = "entry",
        batch_norm: bool = True,
        dropout: float = 0.0,
        num_background: int = 0,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        require_one_of("shape", shape, SHAPES)
        self.conv, self.sparse, self.dropout = conv, sparse, dropout
        self.num_background = num_background
        self.num_learned = num_communities - num_background
        out_channels = self.num_learned + (self.num_learned if shape == "entry" else 1)
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(
            convolution(conv, wide, narrow) for wide, narrow in itertools.pairwise(widths)
        )
        self.norms = nn.ModuleList(
            CommunityNorm(hidden_channels, 1) if batch_norm else nn.Identity()
            for _ in range(num_layers - 1)
        )

    def forward(self, x: Features, edge_index: EdgeIndex) -> Weibull:
        """Posterior over affiliations [N, C] given features [N, F] and edges."""
        edges = as_adjacency(edge_index, x.size(0))
        weights = plain_propagation(edges, x if isinstance(x, Tensor) else x.values, self.conv)
        h: Features = x
        for layer, norm in zip(self.layers[:-1], self.norms, strict=True):
            h = drop(torch.relu_(norm(layer(h, edges, weights))), self.dropout, self.training)
        return self.posterior(self.layers[-1](h, edges, weights))

    def posterior(self, h: Tensor) -> Weibull:
        """Posterior over affiliations from the output of the last layer [N, 1, width]."""
        widths = [self.num_learned, h.size(2) - self.num_learned]
        # Split in one go, so that the gradients of the two are joined and not added up.
        scale, shape = h.squeeze(1).split(widths, dim=1)
        if self.sparse:
            scale = torch.relu(scale) + FLOOR
        else:
            scale = nn.functional.softplus(scale + SCALE_OFFSET) + SMALLEST_SCALE
        shape = nn.functional.softplus(shape + SHAPE_OFFSET) + SMALLEST_SHAPE
        shape = shape.expand_as(scale)
        if self.num_background:
            alike = (0, self.num_background)
            scale = nn.functional.pad(scale, alike, value=BACKGROUND_SCALE)
            shape = nn.functional.pad(shape, alike, value=BACKGROUND_SHAPE)
        return Posterior(scale, shape, validate_args=False)
