"""A graph's edges in the order the kernels read them, and the kernels by gather and scatter."""

import functools
import warnings
from typing import Protocol

import torch
from torch import Tensor

SMALLEST_RATE = 1e-20
"""Added to rates before their logarithm: an edge that no community explains is split evenly."""


class Pattern(Protocol):
    """The four sums of the model over edges e that end in i and come from j."""

    def sum_neighbours(self, weight: Tensor | None, x: Tensor) -> Tensor:
        """``out[i, k] = sum over e of weight[e, k] * x[j, k]``; no weights count as ones."""

    def sum_edges(self, weight: Tensor) -> Tensor:
        """``out[i, k] = sum over e of weight[e, k]``."""

    def dot_ends(self, rows: Tensor, columns: Tensor) -> Tensor:
        """``out[e, k] = rows[i, k] . columns[j, k]``."""

    def share_ends(self, rows: Tensor, columns: Tensor, inverse_temperature: float) -> Tensor:
        """Softmax over k of ``inverse_temperature * dot_ends(rows, columns)``."""


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
        look: Whether to spare sorted edges another sorting; to look, a GPU is waited for.
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
        self.order: Tensor | None = None
        """Index of each edge in the order given, or None if that was sorted already."""
        if not look or not bool((rows[1:] >= rows[:-1]).all()):
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

    def share_ends(self, rows: Tensor, columns: Tensor, inverse_temperature: float) -> Tensor:
        """Softmax over k of ``inverse_temperature * dot_ends(rows, columns)``."""
        return torch.softmax(inverse_temperature * self.dot_ends(rows, columns), dim=1)


def index_type(largest: int) -> torch.dtype:
    """The smallest integers that count so far."""
    return torch.int32 if largest < 2**31 else torch.int64
