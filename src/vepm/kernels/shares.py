"""Rates at which communities link nodes, and how they share an edge out."""

import torch
from torch import Tensor

from vepm.kernels.aggregation import EdgeIndex, edge_dot

SMALLEST_RATE = 1e-20
"""Added to rates before their logarithm: an edge that no community explains is split evenly."""
SMALLEST_SHARE = 0.003
"""A community through which a smaller share of the expected links runs is empty."""


def couple(z: Tensor, activation: Tensor) -> Tensor:
    r"""One end of every pair: :math:`y_i = \Lambda z_i`, so that :math:`r_{ij} = y_i^\top z_j`.

    The activation has a value of each community [C], or one of each pair of them [C, C].
    """
    return z * activation if activation.dim() == 1 else z @ activation


def pair_rates(a: Tensor, b: Tensor, activation: Tensor) -> Tensor:
    r"""Rate :math:`a_i^\top \Lambda b_i` of each row of two sets of affiliations [N, C]."""
    if activation.dim() == 1:
        return (a.square() if a is b else a * b) @ activation
    return (couple(a, activation) * b).sum(-1)


def link_shares(z: Tensor, activation: Tensor) -> Tensor:
    r"""Share of the expected links of a graph that run through each community [C].

    .. math:: \frac{\gamma_c s_c^2}{\sum_d \gamma_d s_d^2}, \quad s = \sum_i z_i

    Example:
        >>> link_shares(torch.tensor([[1.0, 2.0], [1.0, 0.0]]), torch.tensor([3.0, 1.0]))
        tensor([0.7500, 0.2500])
    """
    total = z.sum(0)
    between = activation if activation.dim() == 1 else activation + activation.mT
    links = total * couple(total, between)
    # A share that grew because others shrink would reward one community for taking all links.
    return links / links.sum().detach()


def posterior_shares(rates: Tensor, exponent: float) -> Tensor:
    r"""Shares proportional to a power of the rates.

    .. math:: w_{ek} = r_{ek}^{\beta} / \sum_l r_{el}^{\beta}

    Example:
        >>> posterior_shares(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), 1.0)
        tensor([[0.2500, 0.7500],
                [0.5000, 0.5000]])
    """
    return torch.softmax(exponent * torch.log(rates + SMALLEST_RATE), dim=-1)


def softmax_shares(rates: Tensor, inverse_temperature: float) -> Tensor:
    """Softmax of the rates [E, K] of each edge."""
    # Over the first axis neighbouring edges go through the softmax together, faster.
    return torch.softmax(inverse_temperature * rates.t(), dim=0).t().contiguous()


def edge_shares(
    target: Tensor, source: Tensor, edge_index: EdgeIndex, temperature: float = 1.0
) -> Tensor:
    r"""Share every edge out among the communities by the agreement of its two ends.

    .. math:: w_{ek} = \mathrm{softmax}_k ( \langle t_{jk}, s_{ik} \rangle / \tau )
              \quad \text{for edge } e = (i, j)

    Args:
        target: Features [N, K, D] read at ``edge_index[1]``.
        source: Features [N, K, D] read at ``edge_index[0]``.
        edge_index: Edges [2, E] or an :class:`Adjacency`.
        temperature: :math:`\tau`; low gives an edge to one community, high shares it evenly.

    Returns:
        Shares [E, K]; those of an edge sum to one.
    """
    return softmax_shares(edge_dot(target, source, edge_index), 1 / temperature)
