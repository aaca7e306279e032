"""Random numbers that belong to a place in a graph: the same in every epoch and every batch.

A counter-based generator: nothing is stored, and a graph met again gets the same numbers.
"""

import math

import torch
from torch import Tensor

from vepm.nn.aggregation import Adjacency

_BITS = 52
"""Half steps of this fineness lie strictly between 0 and 1 in double precision."""


def uniform_on_edges(edges: Adjacency, batch: Tensor | None, count: int) -> Tensor:
    """U(0, 1) draws [E, count] that depend on an edge's place and on its graph alone.

    Both directions of an edge have the same draws. Graphs of other edges have other draws.
    """
    source, target, batch = edges.source, edges.target, _batch(edges, batch)
    start = _starts(batch)[source]
    low, high = torch.minimum(source, target) - start, torch.maximum(source, target) - start
    state = _mix(_mix(_keys(edges, batch)[batch[source]] + low) + high)
    return _uniform(state, count)


def normal_on_nodes(edges: Adjacency, batch: Tensor | None, count: int) -> Tensor:
    """Standard normal draws [N, count] that depend on a node's place and on its graph alone."""
    batch = _batch(edges, batch)
    place = torch.arange(edges.num_nodes, device=batch.device) - _starts(batch)
    uniform = _uniform(_mix(_keys(edges, batch)[batch] + place), count)
    return math.sqrt(2) * torch.erfinv(2 * uniform - 1)


def _batch(edges: Adjacency, batch: Tensor | None) -> Tensor:
    return edges.source.new_zeros(edges.num_nodes) if batch is None else batch


def _starts(batch: Tensor) -> Tensor:
    """Number of the first node of each node's graph [N]."""
    counts = torch.bincount(batch)
    return (counts.cumsum(0) - counts)[batch]


def _keys(edges: Adjacency, batch: Tensor) -> Tensor:
    """A number for each graph [G] that its size and its edges decide, in whatever order."""
    source, start = edges.source, _starts(batch)
    ends = (source - start[source], edges.target - start[source])
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    sizes = _mix(torch.bincount(batch))
    return _mix(sizes.index_add(0, batch[source], _mix(_mix(low) + high)))


def _uniform(state: Tensor, count: int) -> Tensor:
    state = _mix(state[:, None] + torch.arange(count, device=state.device))
    return ((state & (2**_BITS - 1)).double() + 0.5) / 2**_BITS


def _mix(state: Tensor) -> Tensor:
    """Scramble 64-bit integers so that neighbours in the input are unrelated in the output."""
    state = state + 0x1E3779B97F4A7C15
    state = (state ^ ((state >> 30) & (2**34 - 1))) * 0x3F58476D1CE4E5B9
    state = (state ^ ((state >> 27) & (2**37 - 1))) * 0x14D049BB133111EB
    return state ^ ((state >> 31) & (2**33 - 1))
