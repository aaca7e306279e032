"""The kernels on CPUs: products with one sparse matrix that holds a copy of the graph per head."""

import functools

import torch
from torch import Tensor

from vepm.kernels.patterns import SortedEdges, csr_matrix, index_type, multiply_into

LARGEST_BLOCK = 2**27
"""Edges times communities in one matrix: two or three numbers for each are kept."""
STRIP = 2**21
"""Numbers that are rearranged at a time."""


class BlockPattern:
    """Sparse products with K disjoint copies of the graph, rows numbered node * K + k.

    So features [N, K, D] are multiplied where they lie, and what is read of a neighbour for one
    community is still in the cache for the next. A graph too large for K copies has fewer of
    them, used again and again.

    Args:
        edges: The edges.
        heads: Number of communities K.
    """

    def __init__(self, edges: SortedEdges, heads: int) -> None:
        self.edges, self.heads = edges, heads
        most = max(1, min(heads, LARGEST_BLOCK // max(edges.num_edges, 1)))
        # As few parts as can be, all of about one size.
        parts = -(-heads // most)
        self.sizes = [(heads + part) // parts for part in range(parts)]
        copies = {size: Copies(edges, size) for size in set(self.sizes)}
        self.copies = [copies[size] for size in self.sizes]

    def sum_neighbours(self, weight: Tensor | None, x: Tensor) -> Tensor:
        """``out[i, k] = sum over edges e into i of weight[e, k] * x[source of e, k]``."""
        if x.numel() == 0 or self.edges.num_edges == 0:
            return torch.zeros_like(x)
        if x.dtype not in (torch.float32, torch.float64):
            wide = None if weight is None else weight.float()
            return self.sum_neighbours(wide, x.float()).to(x.dtype)
        weights = [None] * len(self.sizes) if weight is None else self._split(weight)
        parts = zip(self.copies, weights, self._split(x), strict=True)
        return _joined([copies.multiply(those, part) for copies, those, part in parts])

    def sum_edges(self, weight: Tensor) -> Tensor:
        """``out[i, k] = sum over edges e into i of weight[e, k]``."""
        edges = self.edges
        if weight.numel() == 0:
            return weight.new_zeros(edges.num_nodes, weight.size(1))
        order = edges.order
        if order is None:
            order = torch.arange(edges.num_edges, dtype=edges.pointer.dtype)
        ones = weight.new_ones(edges.num_edges)
        shape = (edges.num_nodes, edges.num_edges)
        return csr_matrix(edges.pointer, order, ones, shape) @ weight.contiguous()

    def dot_ends(self, rows: Tensor, columns: Tensor) -> Tensor:
        """``out[e, k] = rows[target of e, k] . columns[source of e, k]``."""
        if rows.numel() == 0 or self.edges.num_edges == 0:
            return rows.new_zeros(self.edges.num_edges, self.heads)
        if rows.dtype not in (torch.float32, torch.float64):
            return self.dot_ends(rows.float(), columns.float()).to(rows.dtype)
        parts = zip(self.copies, self._split(rows), self._split(columns), strict=True)
        return _joined([copies.sample(near, far) for copies, near, far in parts])

    def share_ends(self, rows: Tensor, columns: Tensor, inverse_temperature: float) -> Tensor:
        """Softmax over k of ``inverse_temperature * dot_ends(rows, columns)``."""
        rates = self.dot_ends(rows, columns)
        for some in rates.split(max(1, STRIP // self.heads)):
            # Over the first axis neighbouring edges go through the softmax together, faster.
            turned = some.t().contiguous()
            shares = torch.softmax(
                turned if inverse_temperature == 1 else turned * inverse_temperature, dim=0
            )
            some.copy_(shares.t())
        return rates

    def _split(self, values: Tensor) -> list[Tensor]:
        """Values [rows, K, ...] for one multiplication after the other."""
        return [part.contiguous() for part in values.split(self.sizes, dim=1)]


class Copies:
    """Disjoint copies of a graph as one sparse matrix.

    Args:
        edges: The edges.
        number: Number of copies; node i of copy c has row i * number + c.
    """

    def __init__(self, edges: SortedEdges, number: int) -> None:
        self.edges, self.number = edges, number
        self.size = number * edges.num_nodes
        self.pointer, self.columns = edges.pointer, edges.columns
        if number == 1:
            return
        count = number * edges.num_edges
        index = index_type(max(self.size, count))
        degree = edges.degree[:, None]
        starts = number * edges.pointer[:-1, None].long() + degree * torch.arange(number)
        self.pointer = torch.cat([starts.flatten(), starts.new_tensor([count])]).to(index)
        self.columns = torch.empty(count, dtype=index)
        self._edge_of = torch.empty(count, dtype=index)
        rank = torch.arange(edges.num_edges) - edges.pointer[:-1].repeat_interleave(edges.degree)
        order = torch.arange(edges.num_edges) if edges.order is None else edges.order
        # One copy after the other: what all of them take in passing is larger than what is kept.
        for copy in range(number):
            # Where the matrix keeps each edge of this copy, edges in row order.
            place = starts[:, copy].repeat_interleave(edges.degree) + rank
            self.columns[place] = edges.columns.to(index) * number + copy
            self._edge_of[place] = order.to(index) * number + copy

    @functools.cached_property
    def _place_of(self) -> Tensor:
        """Where the matrix keeps each edge of each copy, as the edges were given."""
        place_of, first = torch.empty_like(self._edge_of), 0
        for some in self._edge_of.split(STRIP):
            last = first + some.numel()
            place_of[some.long()] = torch.arange(first, last, dtype=some.dtype)
            first = last
        return place_of

    def _arrange(self, values: Tensor) -> Tensor:
        """Values of the edges as given [E, copies], as the matrix keeps them."""
        if self.number == 1:
            return self.edges.arrange(values.flatten())
        return values.flatten().index_select(0, self._edge_of)

    def _restore(self, values: Tensor) -> Tensor:
        """Values as the matrix keeps them, as the edges were given [E, copies]."""
        if self.number == 1:
            return self.edges.restore(values)[:, None]
        return values.index_select(0, self._place_of).view(-1, self.number)

    def multiply(self, weight: Tensor | None, x: Tensor) -> Tensor:
        """Sum neighbours' features [N, copies, D] by weights [E, copies]."""
        values = x.new_ones(self.columns.numel()) if weight is None else self._arrange(weight)
        out = torch.empty_like(x)
        multiply_into(out.view(self.size, -1), self._matrix(values), x.view(self.size, -1))
        return out

    def sample(self, near: Tensor, far: Tensor) -> Tensor:
        """Products of the ends of each edge in each copy [E, copies]."""
        pattern = self._matrix(near.new_zeros(self.columns.numel()))
        values = _sampled_product(pattern, near.view(self.size, -1), far.view(self.size, -1))
        return self._restore(values)

    def _matrix(self, values: Tensor) -> Tensor:
        return csr_matrix(self.pointer, self.columns, values, (self.size, self.size))


def _joined(parts: list[Tensor]) -> Tensor:
    # Joining a single part would copy it.
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _sampled_product(pattern: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Entries of ``a @ b.t()`` at the places of a pattern."""
    columns = pattern.col_indices()
    if columns.numel() > pattern.size(0) ** 2:
        # Repeated edges outnumber the places of the matrix, which sampled_addmm refuses.
        repeats = pattern.crow_indices().diff()
        return (a.repeat_interleave(repeats, 0) * b.index_select(0, columns)).sum(1)
    return torch.sparse.sampled_addmm(pattern, a, b.t(), beta=0.0).values()
