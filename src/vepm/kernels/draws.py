"""Random numbers that belong to a place in a graph: the same in every epoch and every batch.

A counter-based generator: nothing is stored, and a graph met again gets the same numbers.
"""

import math

import torch
from torch import Tensor

from vepm.kernels.aggregation import Adjacency

_BITS = 52  # half steps of this fineness lie strictly between 0 and 1 in double precision


def uniform_on_edges(edges: Adjacency, batch: Tensor | None, count: int) -> Tensor:
    """U(0, 1) draws [E, count] that depend on an edge's place and graph, not on its direction."""
    keys, _, low, high = _places(edges, batch)
    return _uniform(_mix(_mix(keys[edges.source] + low) + high), count)


def normal_on_nodes(edges: Adjacency, batch: Tensor | None, count: int) -> Tensor:
    """Standard normal draws [N, count] that depend on a node's place and on its graph alone."""
    keys, place, _, _ = _places(edges, batch)
    return math.sqrt(2) * torch.erfinv(2 * _uniform(_mix(keys + place), count) - 1)


def _places(edges: Adjacency, batch: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of every node a number of its graph and its place there, of every edge those of its ends.

    The size and the edges of a graph, in whatever order, decide its number.
    """
    nothing = edges.source.new_zeros(edges.num_nodes)
    batch = nothing if batch is None else batch
    # Nodes of each graph, then zeros: to count the graphs, a GPU had to be waited for.
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
