"""Random numbers that belong to a place in a graph: the same in every epoch and every batch.

A counter-based generator: nothing is stored, and a graph met again gets the same numbers.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vepm.kernels.aggregation import Adjacency

_BITS = 52
"""Half steps of this fineness lie strictly between 0 and 1 in double precision."""


def uniform_on_edges(edges: Adjacency, batch: Tensor | None, count: int) -> Tensor:
    """U(0, 1) draws [E, count] that depend on an edge's place and on its graph alone.

    Both directions of an edge have the same draws. Graphs of other edges have other draws.
    """
    source, target, graphs = edges.source, edges.target, _Graphs.of(edges, batch)
    start = graphs.starts[source]
    low, high = torch.minimum(source, target) - start, torch.maximum(source, target) - start
    state = _mix(_mix(_keys(edges, graphs)[graphs.batch[source]] + low) + high)
    return _uniform(state, count)


def normal_on_nodes(edges: Adjacency, batch: Tensor | None, count: int) -> Tensor:
    """Standard normal draws [N, count] that depend on a node's place and on its graph alone."""
    graphs = _Graphs.of(edges, batch)
    place = torch.arange(edges.num_nodes, device=edges.source.device) - graphs.starts
    uniform = _uniform(_mix(_keys(edges, graphs)[graphs.batch] + place), count)
    return math.sqrt(2) * torch.erfinv(2 * uniform - 1)


class _Graphs(NamedTuple):
    batch: Tensor
    """Graph of each node [N]."""
    sizes: Tensor
    """Nodes of each graph, then zeros [N]: to count the graphs, a GPU had to be waited for."""

    @classmethod
    def of(cls, edges: Adjacency, batch: Tensor | None) -> "_Graphs":
        nothing = edges.source.new_zeros(edges.num_nodes)
        batch = nothing if batch is None else batch
        return cls(batch, nothing.scatter_add(0, batch, torch.ones_like(batch)))

    @property
    def starts(self) -> Tensor:
        """Number of the first node of each node's graph [N]."""
        return (self.sizes.cumsum(0) - self.sizes)[self.batch]


def _keys(edges: Adjacency, graphs: _Graphs) -> Tensor:
    """A number for each graph that its size and its edges decide, in whatever order [N]."""
    source, start = edges.source, graphs.starts
    ends = (source - start[source], edges.target - start[source])
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    return _mix(_mix(graphs.sizes).scatter_add(0, graphs.batch[source], _mix(_mix(low) + high)))


def _uniform(state: Tensor, count: int) -> Tensor:
    state = _mix(state[:, None] + torch.arange(count, device=state.device))
    return ((state & (2**_BITS - 1)).double() + 0.5) / 2**_BITS


def _mix(state: Tensor) -> Tensor:
    """Scramble 64-bit integers so that neighbours in the input are unrelated in the output."""
    state = state + 0x1E3779B97F4A7C15
    state = (state ^ ((state >> 30) & (2**34 - 1))) * 0x3F58476D1CE4E5B9
    state = (state ^ ((state >> 27) & (2**37 - 1))) * 0x14D049BB133111EB
    return state ^ ((state >> 31) & (2**33 - 1))
