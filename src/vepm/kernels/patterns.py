"""A graph's edges in the order the kernels read them, and the sums over them on any device."""

import warnings
from typing import Any

import torch
from torch import Tensor


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
