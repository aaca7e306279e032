"""Rates at which communities link nodes, shares of edges, and random draws in their place.

Draws belong to a place in a graph: by a counter-based generator nothing is stored, and a graph met
again, in any epoch or batch, gets the same numbers.
"""

import math

import torch
from torch import Tensor

from vepm.kernels.aggregation import Adjacency

SMALLEST_RATE = 1e-20  # added to rates: an edge that no community explains is split evenly
SMALLEST_SHARE = 0.003  # with a smaller share of the expected links a community is empty
_BITS = 52  # half steps of this fineness lie strictly between 0 and 1 in double precision


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
    # Over the first axis neighbouring edges go through the softmax together, faster.
    powers = exponent * torch.log(rates.t() + SMALLEST_RATE)
    return torch.softmax(powers, dim=0).t().contiguous()


def softmax_shares(rates: Tensor, inverse_temperature: float) -> Tensor:
    """Softmax of the rates [E, K] of each edge."""
    return torch.softmax(inverse_temperature * rates.t(), dim=0).t().contiguous()


def uniform_on_edges(edges: Adjacency, batch: Tensor | None, count: int) -> Tensor:
    """U(0, 1) draws [E, count] that depend on an edge's place and graph, not on its direction."""
    keys, _, low, high = _places(edges, batch)
    return _uniform(_mix(_mix(keys[edges.source] + low) + high), count)


def normal_on_nodes(edges: Adjacency, batch: Tensor | None, count: int) -> Tensor:
    """Standard normal draws [N, count] that depend on a node's place and on its graph alone."""
    keys, place, _, _ = _places(edges, batch)
    return math.sqrt(2) * torch.erfinv(2 * _uniform(_mix(keys + place), count) - 1)


def _places(edges: Adjacency, batch: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A hash of the graph of each node and its place there; the places of the ends of each edge.

    The hash depends on the size and the edges of the graph, but not on their order.
    """
    nothing = edges.source.new_zeros(edges.num_nodes)
    batch = nothing if batch is None else batch
    # Nodes of each graph, then zeros: counting the graphs would synchronise with a GPU.
    sizes = nothing.scatter_add(0, batch, torch.ones_like(batch))
    place = torch.arange(edges.num_nodes, device=batch.device) - (sizes.cumsum(0) - sizes)[batch]
    ends = place[edges.source], place[edges.target]
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    keys = _mix(sizes).scatter_add(0, batch[edges.source], _mix(_mix(low) + high))
    return _mix(keys)[batch], place, low, high


def _uniform(state: Tensor, count: int) -> Tensor:
    state = _mix(state[:, None] + torch.arange(count, device=state.device))
    return ((state & (2**_BITS - 1)).double() + 0.5) / 2**_BITS


def _mix(state: Tensor) -> Tensor:
    """Scramble 64-bit integers so that neighbours in the input are unrelated in the output."""
    state = state + 0x1E3779B97F4A7C15
    state = (state ^ ((state >> 30) & (2**34 - 1))) * 0x3F58476D1CE4E5B9
    state = (state ^ ((state >> 27) & (2**37 - 1))) * 0x14D049BB133111EB
    return state ^ ((state >> 31) & (2**33 - 1))
