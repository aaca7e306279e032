"""The one hot kernel: sums over neighbours in K communities at once, and its adjoint.

Both directions of the computation are sparse products on a pattern that is built once per
graph, so memory is O(N H + E K): no message of size [E, H] outlives a kernel, and no gradient
of size N x N ever exists.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def csr_matrix(
    row_pointer: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]
) -> Tensor:
    """A sparse CSR tensor, without PyTorch's notice that these are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(row_pointer, columns, values, shape, check_invariants=False)


class _BlockPattern:
    """CSR pattern of K disjoint copies of a graph, rows and columns numbered node * K + k."""

    def __init__(self, rows: Tensor, columns: Tensor, num_nodes: int, heads: int) -> None:
        order = torch.argsort(rows, stable=True)
        rows, columns = rows[order], columns[order]
        degree = torch.bincount(rows, minlength=num_nodes)
        start = degree.cumsum(0) - degree
        head = torch.arange(heads, device=rows.device)
        rank = torch.arange(rows.numel(), device=rows.device) - start[rows]
        slot = (start[rows] * heads + rank)[:, None] + degree[rows][:, None] * head
        index = torch.int32 if max(num_nodes, rows.numel()) * heads < 2**31 else torch.int64
        self.size = num_nodes * heads
        self.row_pointer = _starts(degree.repeat_interleave(heads)).to(index)
        self.columns = torch.empty(slot.numel(), dtype=index, device=rows.device)
        self.columns[slot.flatten()] = (columns[:, None] * heads + head).flatten().to(index)
        # slot_of[e, k] is where edge e of community k sits among the stored values.
        self.slot_of = torch.empty_like(slot)
        self.slot_of[order] = slot
        self.edge_of = torch.empty_like(slot).flatten()
        self.edge_of[self.slot_of.flatten()] = torch.arange(slot.numel(), device=rows.device)

    def matrix(self, values: Tensor) -> Tensor:
        return csr_matrix(self.row_pointer, self.columns, values, (self.size, self.size))

    def sum_neighbours(self, weight: Tensor, x: Tensor) -> Tensor:
        """``out[i, k] = sum over edges e into i of weight[e, k] * x[source of e, k]``."""
        if x.numel() == 0 or weight.numel() == 0:
            return torch.zeros_like(x)
        matrix = self.matrix(weight.flatten()[self.edge_of])
        return (matrix @ x.reshape(self.size, -1)).view_as(x)

    def dot_ends(self, rows: Tensor, columns: Tensor) -> Tensor:
        """``out[e, k] = rows[target of e, k] . columns[source of e, k]``."""
        if rows.numel() == 0 or self.slot_of.numel() == 0:
            return rows.new_zeros(self.slot_of.shape)
        a, b = rows.reshape(self.size, -1), columns.reshape(self.size, -1)
        if self.columns.numel() > self.size**2:
            # Repeated edges outnumber the places of the matrix, which sampled_addmm refuses.
            repeats = self.row_pointer.diff()
            values = (a.repeat_interleave(repeats, 0) * b[self.columns]).sum(1)
            return values[self.slot_of]
        pattern = self.matrix(rows.new_zeros(self.columns.numel()))
        values = torch.sparse.sampled_addmm(pattern, a, b.t(), beta=0.0).values()
        return values[self.slot_of]


class _GatherPattern:
    """The same sums by gather and scatter, for devices without a fast CSR product."""

    def __init__(self, rows: Tensor, columns: Tensor) -> None:
        self.rows, self.columns = rows, columns

    def sum_neighbours(self, weight: Tensor, x: Tensor) -> Tensor:
        """``out[i, k] = sum over edges e into i of weight[e, k] * x[source of e, k]``."""
        messages = x[self.columns] * weight[..., None]
        return torch.zeros_like(x).index_add_(0, self.rows, messages)

    def dot_ends(self, rows: Tensor, columns: Tensor) -> Tensor:
        """``out[e, k] = rows[target of e, k] . columns[source of e, k]``."""
        return (rows[self.rows] * columns[self.columns]).sum(-1)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Edges of a graph with what the kernels derive from them, derived once.

    Wherever a module takes ``edge_index``, an ``Adjacency`` may stand for it; training loops
    build one per graph, so that sorting is not repeated in every layer of every epoch.

    Args:
        edge_index: The edges [2, E], both directions, messages flowing from row 0 to row 1.
        num_nodes: The number of nodes.

    Example:
        >>> edges = Adjacency(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> aggregate(torch.ones(2, 1, 1), edges, torch.ones(2, 1)).flatten()
        tensor([1., 1.])
    """

    edge_index: Tensor
    num_nodes: int
    _patterns: dict[tuple[int, bool], _BlockPattern | _GatherPattern] = field(
        default_factory=dict, repr=False
    )

    @property
    def source(self) -> Tensor:
        """Where each edge comes from [E]."""
        return self.edge_index[0]

    @property
    def target(self) -> Tensor:
        """Where each edge goes to [E]."""
        return self.edge_index[1]

    def pattern(self, heads: int, transposed: bool = False) -> _BlockPattern | _GatherPattern:
        """How to sum for ``heads`` communities; rows are targets unless transposed."""
        key = (heads, transposed)
        if key not in self._patterns:
            self._check_ends()
            rows, columns = (self.source, self.target) if transposed else (self.target, self.source)
            self._patterns[key] = (
                _BlockPattern(rows, columns, self.num_nodes, heads)
                if rows.device.type == "cpu"
                else _GatherPattern(rows, columns)
            )
        return self._patterns[key]

    def _check_ends(self) -> None:
        # The sparse kernels read memory at these numbers without looking.
        if self.edge_index.numel():
            low, high = (int(end) for end in torch.aminmax(self.edge_index))
            if low < 0 or high >= self.num_nodes:
                raise ValueError(
                    f"edge_index holds nodes {low} to {high}, but nodes are numbered 0 to "
                    f"{self.num_nodes - 1}"
                )

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum edge values [E, ...] over the edges that end in each node [N, ...]."""
        total = values.new_zeros(self.num_nodes, *values.shape[1:])
        return total.index_add(0, self.target, values)

    def to(self, device: torch.device | str) -> "Adjacency":
        """The same edges on another device."""
        return Adjacency(self.edge_index.to(device), self.num_nodes)


EdgeIndex = Tensor | Adjacency


def as_adjacency(edge_index: EdgeIndex, num_nodes: int) -> Adjacency:
    """Wrap a plain ``edge_index``; an :class:`Adjacency` passes through."""
    if isinstance(edge_index, Adjacency):
        return edge_index
    return Adjacency(edge_index, num_nodes)


def _starts(counts: Tensor) -> Tensor:
    """Offsets [n + 1] at which groups of the given sizes [n] begin and end."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, edges: Adjacency) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.edges = edges
        return edges.pattern(x.size(1)).sum_neighbours(weight, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        heads, edges = x.size(1), ctx.edges
        needs_x, needs_weight, _ = ctx.needs_input_grad
        grad = grad.contiguous()
        grad_x = edges.pattern(heads, True).sum_neighbours(weight, grad) if needs_x else None
        grad_weight = edges.pattern(heads).dot_ends(grad, x) if needs_weight else None
        return grad_x, grad_weight, None


class _EdgeDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, target: Tensor, source: Tensor, edges: Adjacency) -> Tensor:
        ctx.save_for_backward(target, source)
        ctx.edges = edges
        return edges.pattern(target.size(1)).dot_ends(target, source)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        target, source = ctx.saved_tensors
        heads, edges = target.size(1), ctx.edges
        needs_target, needs_source, _ = ctx.needs_input_grad
        grad = grad.contiguous()
        grad_target = edges.pattern(heads).sum_neighbours(grad, source) if needs_target else None
        grad_source = (
            edges.pattern(heads, True).sum_neighbours(grad, target) if needs_source else None
        )
        return grad_target, grad_source, None


def aggregate(x: Tensor, edge_index: EdgeIndex, edge_weight: Tensor) -> Tensor:
    r"""Sum each node's neighbours in every community, weighted by the community's share.

    .. math:: y_{jk} = \sum_{(i, j) \in E} w_{ijk} \, x_{ik}

    Args:
        x: Features [N, K, D], one slice per community.
        edge_index: Edges [2, E] (or an :class:`Adjacency`), flowing from row 0 to row 1.
        edge_weight: Share of each edge in each community [E, K].

    Returns:
        Sums [N, K, D]. Gradients flow to ``x`` and ``edge_weight`` in O(N K D + E K) memory.

    Example:
        >>> x = torch.tensor([[[1.0]], [[10.0]]])
        >>> aggregate(x, torch.tensor([[0], [1]]), torch.tensor([[0.5]])).flatten()
        tensor([0.0000, 0.5000])
    """
    edges = as_adjacency(edge_index, x.size(0))
    expected = (edges.source.numel(), x.size(1))
    if edge_weight.shape != expected:
        raise ValueError(
            f"edge_weight must have a row per edge and a column per community, {expected}, "
            f"got {tuple(edge_weight.shape)}"
        )
    return _Aggregate.apply(x.contiguous(), edge_weight, edges)  # type: ignore[no-untyped-call]


def edge_dot(target: Tensor, source: Tensor, edge_index: EdgeIndex) -> Tensor:
    r"""Dot products between the two ends of every edge, community by community.

    .. math:: d_{ek} = \langle t_{jk}, s_{ik} \rangle \quad \text{for edge } e = (i, j)

    The adjoint of :func:`aggregate` with respect to its weights.

    Args:
        target: Features [N, K, D] read at ``edge_index[1]``.
        source: Features [N, K, D] read at ``edge_index[0]``.
        edge_index: Edges [2, E] or an :class:`Adjacency`.

    Returns:
        Products [E, K].
    """
    edges = as_adjacency(edge_index, target.size(0))
    return _EdgeDot.apply(  # type: ignore[no-untyped-call]
        target.contiguous(), source.contiguous(), edges
    )
