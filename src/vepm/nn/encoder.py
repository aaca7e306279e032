"""First box: how strongly each node belongs to each community, with uncertainty."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributions import Gamma, Weibull
from torch.distributions.kl import register_kl

from vepm.kernels.aggregation import EdgeIndex, as_adjacency
from vepm.kernels.dropout import drop
from vepm.kernels.features import Features
from vepm.nn.convolution import CommunityNorm, convolution, plain_propagation, require_one_of

SHAPES = ("entry", "node")
EULER_GAMMA = 0.57721566490153286061
# An affiliation of zero would give an observed edge probability zero and an infinite loss.
SMALLEST_AFFILIATION = 1e-6
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
        conv: ``"gcn"``, ``"gin"`` or ``"sage"``.
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


@register_kl(Weibull, Gamma)
def _kl_weibull_gamma(q: Weibull, p: Gamma) -> Tensor:
    # The mean first: the order decides how gradients are added up, to the last bit.
    mean, shape, scale, alpha, beta = q.mean, q.concentration, q.scale, p.concentration, p.rate
    # Terms of the prior alone are added up first: they are far smaller than the posterior.
    constant = torch.lgamma(alpha) - alpha * torch.log(beta) - EULER_GAMMA - 1
    spread = EULER_GAMMA * alpha / shape + torch.log(shape)
    return spread - alpha * torch.log(scale) + beta * mean + constant


class Posterior(Weibull):
    """A Weibull whose mean, which likelihood and divergence both need, is computed once."""

    @property
    def mean(self) -> Tensor:
        """Mean of every entry."""
        # A mean computed without gradients must not be reused where gradients are needed.
        key = f"_mean_{torch.is_grad_enabled()}"
        if key not in self.__dict__:
            self.__dict__[key] = self.scale * torch.exp(torch.lgamma(1 + 1 / self.concentration))
        mean: Tensor = self.__dict__[key]
        return mean

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """A draw with gradients to shape and scale."""
        # Several times faster on a CPU than a draw from the exponential distribution.
        shape = self._extended_shape(torch.Size(sample_shape))
        uniform = torch.rand(shape, dtype=self.scale.dtype, device=self.scale.device)
        exponential = uniform.neg_().log1p_().neg_()
        return self.scale * exponential.pow(1 / self.concentration)


def draw(posterior: Weibull, sample: bool) -> Tensor:
    r"""Affiliations Z from their posterior: one reparameterised draw, or the mean.

    .. math:: Z = \Lambda \odot (-\log(1 - U))^{1 \oslash K}
    """
    z = posterior.rsample() if sample else posterior.mean
    return z.clamp_min(SMALLEST_AFFILIATION)
