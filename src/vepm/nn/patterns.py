"""A graph's edges in the order the kernels read them, and the kernels in plain PyTorch."""

import functools
import warnings
from typing import Protocol

import torch
from torch import Tensor

# Edges times communities in one block matrix: larger ones gain no speed and cost memory.
LARGEST_BLOCK = 2**22


class Pattern(Protocol):
    """The four sums of the model over edges e that end in i and come from j."""

    def sum_neighbours(self, weight: Tensor | None, x: Tensor) -> Tensor:
        """``out[i, k] = sum over e of weight[e, k] * x[j, k]``; no weights count as ones."""

    def sum_edges(self, weight: Tensor) -> Tensor:
        """``out[i, k] = sum over e of weight[e, k]``."""

    def dot_ends(self, rows: Tensor, columns: Tensor) -> Tensor:
        """``out[e, k] = rows[i, k] . columns[j, k]``."""

    def share_ends(self, rows: Tensor, columns: Tensor, sharpness: float) -> Tensor:
        """Softmax over k of ``sharpness * dot_ends(rows, columns)``."""


def csr_matrix(
    row_pointer: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]
) -> Tensor:
    """A sparse CSR tensor, without PyTorch's notice that these are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(row_pointer, columns, values, shape, check_invariants=False)


def multiply_into(out: Tensor, matrix: Tensor, dense: Tensor) -> Tensor:
    """``matrix @ dense`` written to a tensor that need not be cleared first, as ``@`` does."""
    return torch.addmm(out, matrix, dense, beta=0, out=out)


class SortedEdges:
    """Edges in the order of the node at which they are summed.

    Args:
        rows: Node at which each edge is summed [E].
        columns: Node that each edge reads [E].
        num_nodes: Number of nodes.
    """

    def __init__(self, rows: Tensor, columns: Tensor, num_nodes: int) -> None:
        self.num_nodes, self.num_edges = num_nodes, rows.numel()
        index = index_type(max(num_nodes, rows.numel()))
        self.degree = torch.bincount(rows, minlength=num_nodes)
        self.pointer = torch.nn.functional.pad(self.degree.cumsum(0), (1, 0)).to(index)
        rows, columns = rows.to(index), columns.to(index)
        self.order: Tensor | None = None
        """Number of each edge in the order given, or nothing if that was sorted already."""
        if not bool((rows[1:] >= rows[:-1]).all()):
            self.order = torch.argsort(rows, stable=True).to(index)
            columns = columns.index_select(0, self.order)
        self.columns = columns.contiguous()

    @functools.cached_property
    def _place(self) -> Tensor:
        assert self.order is not None
        place = torch.empty_like(self.order)
        place[self.order.long()] = torch.arange(
            self.num_edges, dtype=place.dtype, device=place.device
        )
        return place

    def arrange(self, values: Tensor) -> Tensor:
        """Values of the edges as given [E, ...], in the order of their rows."""
        return values if self.order is None else values.index_select(0, self.order)

    def restore(self, values: Tensor) -> Tensor:
        """Values of the edges in the order of their rows [E, ...], as the edges were given."""
        return values if self.order is None else values.index_select(0, self._place)


class BlockPattern:
    """Sparse products with K disjoint copies of the graph, rows numbered k * N + node.

    Args:
        edges: The edges.
        heads: Number of communities K.
    """

    def __init__(self, edges: SortedEdges, heads: int) -> None:
        self.edges, self.heads = edges, heads
        self.copies = max(1, min(heads, LARGEST_BLOCK // max(edges.num_edges, 1)))
        index = index_type(self.copies * max(edges.num_nodes, edges.num_edges))
        first = torch.arange(self.copies, dtype=index)[:, None]
        starts = (edges.pointer[:-1] + first * edges.num_edges).flatten()
        end = starts.new_tensor([self.copies * edges.num_edges])
        self.pointer = torch.cat([starts, end]).to(index)
        self.columns = (edges.columns + first * edges.num_nodes).flatten().to(index)

    def _matrices(self, values: Tensor) -> list[Tensor]:
        """Block matrices that hold the values [K, E] of a few communities each."""
        nodes, matrices = self.edges.num_nodes, []
        for part in values.split(self.copies):
            size, count = len(part) * nodes, part.numel()
            inside = (self.pointer[: size + 1], self.columns[:count])
            matrices.append(csr_matrix(*inside, part.reshape(-1), (size, size)))
        return matrices

    def sum_neighbours(self, weight: Tensor | None, x: Tensor) -> Tensor:
        """``out[i, k] = sum over edges e into i of weight[e, k] * x[source of e, k]``."""
        if x.numel() == 0 or self.edges.num_edges == 0:
            return torch.zeros_like(x)
        if x.dtype not in (torch.float32, torch.float64):
            wide = None if weight is None else weight.float()
            return self.sum_neighbours(wide, x.float()).to(x.dtype)
        if weight is None:
            values = x.new_ones(1, self.edges.num_edges).expand(self.heads, -1)
        else:
            values = self.edges.arrange(weight).t().contiguous()
        by_head = x.transpose(0, 1).contiguous()
        out = torch.empty_like(by_head)
        parts = (t.split(self.copies) for t in (by_head, out))
        for matrix, part, total in zip(self._matrices(values), *parts, strict=True):
            multiply_into(total.flatten(0, 1), matrix, part.flatten(0, 1))
        return out.transpose(0, 1).contiguous()

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
        return self.edges.restore(self._dot_by_head(rows, columns).t().contiguous())

    def share_ends(self, rows: Tensor, columns: Tensor, sharpness: float) -> Tensor:
        """Softmax over k of ``sharpness * dot_ends(rows, columns)``."""
        # Over the first axis neighbouring edges go through the softmax together, which is faster.
        rates = self._dot_by_head(rows, columns)
        shares = torch.softmax(rates if sharpness == 1 else rates * sharpness, dim=0)
        return self.edges.restore(shares.t().contiguous())

    def _dot_by_head(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Products [K, E], edges in the order of their rows."""
        if rows.numel() == 0 or self.edges.num_edges == 0:
            return rows.new_zeros(self.heads, self.edges.num_edges)
        if rows.dtype not in (torch.float32, torch.float64):
            return self._dot_by_head(rows.float(), columns.float()).to(rows.dtype)
        zeros = rows.new_zeros(1, self.edges.num_edges).expand(self.heads, -1)
        a, b = (end.transpose(0, 1).contiguous().split(self.copies) for end in (rows, columns))
        values = [
            _sampled_product(matrix, near.flatten(0, 1), far.flatten(0, 1))
            for matrix, near, far in zip(self._matrices(zeros), a, b, strict=True)
        ]
        return _joined(values).view(self.heads, -1)


def _joined(parts: list[Tensor]) -> Tensor:
    # Joining a single part would copy it.
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _sampled_product(pattern: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Entries of ``a @ b.t()`` at the places of a pattern."""
    columns = pattern.col_indices()
    if columns.numel() > pattern.size(0) ** 2:
        # Repeated edges outnumber the places of the matrix, which sampled_addmm refuses.
        repeats = pattern.crow_indices().diff()
        return (a.repeat_interleave(repeats, 0) * b.index_select(0, columns)).sum(1)
    return torch.sparse.sampled_addmm(pattern, a, b.t(), beta=0.0).values()


class GatherPattern:
    """The same sums by gather and scatter, for devices without a kernel of their own.

    Args:
        rows: Node at which each edge is summed [E].
        columns: Node that each edge reads [E].
        num_nodes: Number of nodes.
    """

    def __init__(self, rows: Tensor, columns: Tensor, num_nodes: int) -> None:
        self.rows, self.columns, self.num_nodes = rows, columns, num_nodes

    def sum_neighbours(self, weight: Tensor | None, x: Tensor) -> Tensor:
        """``out[i, k] = sum over edges e into i of weight[e, k] * x[source of e, k]``."""
        messages = x.index_select(0, self.columns)
        if weight is not None:
            messages = messages * weight[..., None]
        return torch.zeros_like(x).index_add_(0, self.rows, messages)

    def sum_edges(self, weight: Tensor) -> Tensor:
        """``out[i, k] = sum over edges e into i of weight[e, k]``."""
        out = weight.new_zeros(self.num_nodes, weight.size(1))
        return out.index_add_(0, self.rows, weight)

    def dot_ends(self, rows: Tensor, columns: Tensor) -> Tensor:
        """``out[e, k] = rows[target of e, k] . columns[source of e, k]``."""
        return (rows.index_select(0, self.rows) * columns.index_select(0, self.columns)).sum(-1)

    def share_ends(self, rows: Tensor, columns: Tensor, sharpness: float) -> Tensor:
        """Softmax over k of ``sharpness * dot_ends(rows, columns)``."""
        return torch.softmax(sharpness * self.dot_ends(rows, columns), dim=1)


def index_type(largest: int) -> torch.dtype:
    """The smallest integers that count so far."""
    return torch.int32 if largest < 2**31 else torch.int64
