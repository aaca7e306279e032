"""A graph's edges in the order the kernels read them, and the kernels on CPUs."""

import functools
import warnings
from typing import Any

import torch
from torch import Tensor

STRIP = 2**21  # numbers that are rearranged at a time


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    """Call an autograd function, whose ``apply`` has no types."""
    return function.apply(*arguments)


def csr_matrix(pointer: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse CSR tensor, without PyTorch's warning that these are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(pointer, columns, values, shape, check_invariants=False)


def multiply(
    pointer: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int], dense: Tensor
) -> Tensor:
    """A CSR matrix times a dense one; unlike with ``@``, the result is not cleared first."""
    if values.numel() == 0 or dense.numel() == 0:
        return dense.new_zeros(shape[0], dense.size(1))
    out = dense.new_empty(shape[0], dense.size(1))
    return torch.addmm(out, csr_matrix(pointer, columns, values, shape), dense, beta=0, out=out)


def index_type(largest: int) -> torch.dtype:
    """The smallest integer type that holds numbers up to the largest."""
    return torch.int32 if largest < 2**31 else torch.int64


def ragged(begin: Tensor, size: Tensor) -> Tensor:
    """Positions of the members of groups, group by group, given the first and size of each."""
    shift = (begin - (size.cumsum(0) - size)).repeat_interleave(size)
    return shift.add_(torch.arange(shift.numel()))


class SortedEdges:
    """Edges sorted by the node at which each is summed [E], given also the node it reads [E].

    With ``look``, sorted edges are not sorted again, which takes a synchronisation with a GPU.
    """

    def __init__(self, rows: Tensor, columns: Tensor, num_nodes: int, *, look: bool = True) -> None:
        self.num_nodes, self.num_edges = num_nodes, rows.numel()
        index = index_type(max(num_nodes, rows.numel()))
        if look:
            self.degree = torch.bincount(rows, minlength=num_nodes)
        else:
            self.degree = rows.new_zeros(num_nodes).scatter_add_(0, rows, torch.ones_like(rows))
        self.pointer = torch.nn.functional.pad(self.degree.cumsum(0), (1, 0)).to(index)
        rows, columns = rows.to(index), columns.to(index)
        # Index of each edge in the order given, or None if that was sorted already.
        self.order: Tensor | None = None
        if not look or not bool((rows[1:] >= rows[:-1]).all()):
            self.order = torch.argsort(rows, stable=True).to(index)
            columns = columns.index_select(0, self.order)
        self.columns = columns.contiguous()


class Pattern:
    """The three sums of the model over edges e that end in i and come from j.

    Here by gather and scatter, for devices without a kernel of their own.
    """

    def __init__(self, rows: Tensor, columns: Tensor, num_nodes: int) -> None:
        self.rows, self.columns, self.num_nodes = rows, columns, num_nodes

    def sum_neighbours(self, weight: Tensor | None, x: Tensor) -> Tensor:
        """``out[i, k] = sum over e of weight[e, k] * x[j, k]``; no weights count as ones."""
        messages = x.index_select(0, self.columns)
        if weight is not None:
            messages = messages * weight[..., None]
        return torch.zeros_like(x).index_add_(0, self.rows, messages)

    def sum_edges(self, weight: Tensor) -> Tensor:
        """``out[i, k] = sum over e of weight[e, k]``."""
        out = weight.new_zeros(self.num_nodes, weight.size(1))
        return out.index_add_(0, self.rows, weight)

    def dot_ends(self, rows: Tensor, columns: Tensor) -> Tensor:
        """``out[e, k] = rows[i, k] . columns[j, k]``."""
        return (rows.index_select(0, self.rows) * columns.index_select(0, self.columns)).sum(-1)


class BlockPattern(Pattern):
    """Sparse products with K disjoint copies of the graph, rows numbered node * K + k.

    So features [N, K, D] are multiplied where they lie, and what is read of a neighbour for one
    community is still in the cache for the next.
    """

    def __init__(self, edges: SortedEdges, heads: int) -> None:
        self.edges, self.heads = edges, heads
        self.size = heads * edges.num_nodes
        self.pointer, self.columns, self._edge_of = edges.pointer, edges.columns, edges.order
        """The matrix, and which edge of which copy each entry is, unless they are in order."""
        if heads == 1:
            return
        count = heads * edges.num_edges
        index = index_type(max(self.size, count))
        degree = edges.degree[:, None]
        starts = heads * edges.pointer[:-1, None].long() + degree * torch.arange(heads)
        self.pointer = torch.cat([starts.flatten(), starts.new_tensor([count])]).to(index)
        self.columns = torch.empty(count, dtype=index)
        self._edge_of = edge_of = torch.empty(count, dtype=index)
        rank = torch.arange(edges.num_edges) - edges.pointer[:-1].repeat_interleave(edges.degree)
        order = torch.arange(edges.num_edges) if edges.order is None else edges.order
        # One copy at a time: temporaries of all would take more memory than the result.
        for copy in range(heads):
            place = starts[:, copy].repeat_interleave(edges.degree) + rank
            self.columns[place] = edges.columns.to(index) * heads + copy
            edge_of[place] = order.to(index) * heads + copy

    @functools.cached_property
    def _place_of(self) -> Tensor | None:
        """Where the matrix keeps each edge of each copy, as the edges were given."""
        if self._edge_of is None:
            return None
        place_of = torch.empty_like(self._edge_of)
        for first in range(0, place_of.numel(), STRIP):
            edges = self._edge_of[first : first + STRIP]
            place_of[edges.long()] = torch.arange(first, first + edges.numel(), dtype=edges.dtype)
        return place_of

    def sum_neighbours(self, weight: Tensor | None, x: Tensor) -> Tensor:
        """Weighted sums of neighbours [N, K, D]."""
        kind = torch.promote_types(x.dtype, torch.float32)
        if weight is None:
            values = x.new_ones(self.columns.numel(), dtype=kind)
        else:
            values = weight.flatten().to(kind)
            values = values if self._edge_of is None else values.index_select(0, self._edge_of)
        shape = (self.size, self.size)
        sums = multiply(self.pointer, self.columns, values, shape, x.to(kind).flatten(0, 1))
        return sums.view_as(x).to(x.dtype)

    def sum_edges(self, weight: Tensor) -> Tensor:
        """Sums of edge values [N, K]."""
        edges, order = self.edges, self.edges.order
        if order is None:
            order = torch.arange(edges.num_edges, dtype=edges.pointer.dtype)
        values = weight.to(torch.promote_types(weight.dtype, torch.float32)).contiguous()
        ones, shape = values.new_ones(edges.num_edges), (edges.num_nodes, edges.num_edges)
        return multiply(edges.pointer, order, ones, shape, values).to(weight.dtype)

    def dot_ends(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Products of the ends of each edge [E, K]."""
        if rows.numel() == 0 or self.edges.num_edges == 0:
            return rows.new_zeros(self.edges.num_edges, self.heads)
        kind = torch.promote_types(rows.dtype, torch.float32)
        near, far = (end.to(kind).flatten(0, 1) for end in (rows, columns))
        if self.columns.numel() > self.size**2:
            # Repeated edges outnumber the places of the matrix, which sampled_addmm refuses.
            repeated = near.repeat_interleave(self.pointer.diff(), 0)
            found = (repeated * far.index_select(0, self.columns)).sum(1)
        else:
            zeros = near.new_zeros(self.columns.numel())
            pattern = csr_matrix(self.pointer, self.columns, zeros, (self.size, self.size))
            found = torch.sparse.sampled_addmm(pattern, near, far.t(), beta=0.0).values()
        found = found if self._place_of is None else found.index_select(0, self._place_of)
        return found.view(-1, self.heads).to(rows.dtype)
