"""The kernel that takes most time: sums over neighbours in K communities, and its adjoint.

Both are sparse products on a pattern that is built once per graph, so memory is O(N H + E K).
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vepm.kernels.patterns import BlockPattern, Pattern, SortedEdges, apply

GROUPED_NUMBERS = 2**22  # read from either end of the edges at a time, or K for each edge


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Edges of a graph with what the kernels derive from them, derived once.

    It may stand wherever a module takes ``edge_index``, and spares every layer another sorting.

    Args:
        edge_index: The edges [2, E], both directions, messages flowing from row 0 to row 1.
        num_nodes: The number of nodes.
        replaceable: Whether other edges take their place when a CUDA graph is replayed: nothing
            may then depend on their values or synchronise with the GPU.
        kinds: Of which known kinds each edge is [E, R], for the partition that splits by them.
        weight: Positive weight of each edge [E], the same in both directions; None for ones.
        arcs: Weight of the link from source to target of each edge, and of the one back [E, 2];
            zero where there is none. None where links have no direction.
        in_degree: Number of edges that end in each node [N], where not all of them are here.

    Example:
        >>> edges = Adjacency(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> aggregate(torch.ones(2, 1, 1), edges, torch.ones(2, 1)).flatten()
        tensor([1., 1.])
    """

    edge_index: Tensor
    num_nodes: int
    replaceable: bool = field(default=False, kw_only=True)
    kinds: Tensor | None = field(default=None, kw_only=True)
    weight: Tensor | None = field(default=None, kw_only=True)
    arcs: Tensor | None = field(default=None, kw_only=True)
    in_degree: Tensor | None = field(default=None, kw_only=True)
    _sorted: dict[bool, SortedEdges] = field(default_factory=dict, repr=False)
    _patterns: dict[tuple[int, bool], Pattern] = field(default_factory=dict, repr=False)
    _scales: dict[torch.dtype, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    @property
    def source(self) -> Tensor:
        """Where each edge comes from [E]."""
        return self.edge_index[0]

    @property
    def target(self) -> Tensor:
        """Where each edge goes to [E]."""
        return self.edge_index[1]

    @property
    def degree(self) -> Tensor:
        """Number of edges that end in each node, or the sum of their message weights [N]."""
        if self.message_weight is not None:
            return self.sum_at_target(self.message_weight).squeeze(1)
        return self.sorted().degree if self.in_degree is None else self.in_degree

    @functools.cached_property
    def message_weight(self) -> Tensor | None:
        r"""Weight of each edge in message passing, :math:`w_{ij} / \sqrt{m_i m_j}` [E, 1], or None.

        With :math:`m_i` the mean weight of the edges of node i, the unit of weights does not matter
        and a node counts itself as much as an average neighbour.
        """
        if self.weight is None:
            return None
        with torch.no_grad():
            weight, count = self.weight[:, None], self.sorted().degree.clamp_min(1)
            mean = self.sum_at_target(weight) / count[:, None]
            ends = (mean.index_select(0, end) for end in self.edge_index)
            return weight / math.prod(ends, start=weight.new_ones(())).sqrt()

    def gcn_weights(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Weights of GCN's normalised adjacency: of the edges [E, 1] and the loops [N, 1]."""
        if dtype not in self._scales:
            with torch.no_grad():
                scale = (self.degree.to(dtype)[:, None] + 1).rsqrt()
                ends = (scale.index_select(0, end) for end in self.edge_index)
                start = self.message_weight
                start = scale.new_ones(()) if start is None else start.to(dtype)
                self._scales[dtype] = math.prod(ends, start=start), scale.square()
        return self._scales[dtype]

    @functools.cached_property
    def links(self) -> "Adjacency":
        """The links of a directed graph, each in its own direction alone."""
        if self.arcs is None:
            return self
        there = self.arcs[:, 0] > 0
        weight = None if self.weight is None else self.arcs[there, 0]
        return type(self)(self.edge_index[:, there], self.num_nodes, weight=weight)

    def sorted(self, transposed: bool = False) -> SortedEdges:
        """The edges in the order of their targets, or of their sources if transposed."""
        if transposed not in self._sorted:
            # The kernels do not check indices. Replaceable edges come from a store of checked ones.
            if self.edge_index.numel() and not self.replaceable:
                low, high = (int(end) for end in torch.aminmax(self.edge_index))
                if low < 0 or high >= self.num_nodes:
                    known = f"but nodes are numbered 0 to {self.num_nodes - 1}"
                    raise ValueError(f"edge_index holds nodes {low} to {high}, {known}")
            ends = (self.source, self.target) if transposed else (self.target, self.source)
            found = SortedEdges(*ends, self.num_nodes, look=not self.replaceable)
            self._sorted[transposed] = found
        return self._sorted[transposed]

    def pattern(self, heads: int, transposed: bool = False) -> Pattern:
        """How to sum for ``heads`` communities; rows are targets unless transposed."""
        key, device = (heads, transposed), self.edge_index.device.type
        if key not in self._patterns:
            edges = self.sorted(transposed)
            if device == "cpu":
                found: Pattern = BlockPattern(edges, heads)
            elif device == "cuda" and (triton_pattern := _triton_pattern()) is not None:
                # Where rows are cut depends on the edges, so rows of replaceable ones are not.
                uncut = {"longest": self.edge_index.size(1)} if self.replaceable else {}
                found = triton_pattern(edges, **uncut)
            else:
                ends = (self.source, self.target) if transposed else (self.target, self.source)
                found = Pattern(*ends, self.num_nodes)
            self._patterns[key] = found
        return self._patterns[key]

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum edge values [E, K] over the edges that end in each node [N, K]."""
        if values.dim() != 2:
            shape = f"[E, K], a column per community, got {list(values.shape)}"
            raise ValueError(f"weights of edges must be {shape}")
        return self.compute(_SumAtTarget, values)

    def sum_neighbours(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """What :func:`aggregate` returns for features and weights of one type."""
        return self.compute(WeightedSum, x, weight)

    def dot_ends(self, target: Tensor, source: Tensor) -> Tensor:
        """What :func:`edge_dot` returns."""
        return self.compute(_EdgeDot, target, source)

    def group_ends(self, target: Tensor, source: Tensor, assignment: Tensor) -> Tensor:
        r"""Products [E, K] of the two ends of every edge, communities gathered into groups.

        .. math:: d_{ek} = \sum_c B_{ck} \, t_{jc} s_{ic} \quad \text{for edge } e = (i, j)

        The assignment B is [C, K]; or [G, C, K], one for each of G graphs with equally many edges,
        which follow each other. Time is O(E C K), memory O(N C + E K).
        """
        groups = assignment if assignment.dim() == 3 else assignment[None]
        return self.compute(GroupedDot, target, source, groups)

    def compute(self, function: type[torch.autograd.Function], *tensors: Tensor | None) -> Tensor:
        """Apply one of the autograd functions below to tensors and this graph."""
        whole = (tensor if tensor is None else tensor.contiguous() for tensor in tensors)
        return apply(function, *whole, self)

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the edges other than their ends, by name."""
        known = {"kinds": self.kinds, "weight": self.weight, "arcs": self.arcs}
        return {name: values for name, values in known.items() if values is not None}

    def to(self, device: torch.device | str) -> "Adjacency":
        """The same edges on another device."""
        moved = {name: values.to(device) for name, values in self.attributes.items()}
        return Adjacency(self.edge_index.to(device), self.num_nodes, **moved)


EdgeIndex = Tensor | Adjacency


def as_adjacency(edge_index: EdgeIndex, num_nodes: int) -> Adjacency:
    """Wrap a plain ``edge_index``; an :class:`Adjacency` passes through."""
    if isinstance(edge_index, Adjacency):
        return edge_index
    shape, kind = list(edge_index.shape), edge_index.dtype
    if len(shape) != 2 or shape[0] != 2 or kind not in (torch.int64, torch.int32):
        raise ValueError(f"edge_index must be [2, E] and of integers, got {shape} of {kind}")
    return Adjacency(edge_index, num_nodes)


@functools.cache
def _triton_pattern() -> Callable[..., Pattern] | None:
    try:
        from vepm.kernels.triton_pattern import TritonPattern
    except ImportError:
        return None
    return TritonPattern


class _SumAtTarget(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, edges: Adjacency) -> Tensor:
        ctx.edges = edges
        return edges.pattern(values.size(1)).sum_edges(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.index_select(0, ctx.edges.target), None


class WeightedSum(torch.autograd.Function):
    """Sums over neighbours, whose gradients are another such sum and products of ends."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, edges: Adjacency) -> Tensor:
        """Sums [N, K, D] of features [N, K, D] with weights [E, K]."""
        needs_x, needs_weight, _ = ctx.needs_input_grad
        # Each is kept only for the gradient of the other.
        ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
        ctx.edges = edges
        return edges.pattern(x.size(1)).sum_neighbours(weight, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Gradients of features and weights."""
        x, weight = ctx.saved_tensors
        heads, edges = grad.size(1), ctx.edges
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
        pattern, heads, grad = ctx.edges.pattern, target.size(1), grad.contiguous()
        near, far, _ = ctx.needs_input_grad
        grad_target = pattern(heads).sum_neighbours(grad, source) if near else None
        return grad_target, pattern(heads, True).sum_neighbours(grad, target) if far else None, None


class GroupedDot(torch.autograd.Function):
    """Communities in blocks of about K, so that nothing larger than [E, K] is kept."""

    @staticmethod
    def forward(
        ctx: Any, target: Tensor, source: Tensor, assignment: Tensor, edges: Adjacency
    ) -> Tensor:
        """Products [E, K] of the ends' [N, C], gathered by assignments [G, C, K]."""
        ctx.save_for_backward(target, source, assignment)
        ctx.edges = edges
        graphs, groups = assignment.size(0), assignment.size(2)
        rates = target.new_zeros(graphs, edges.source.numel() // graphs, groups)
        for near, far, rows in _blocks(edges, target, source, assignment):
            rates.baddbmm_(near.mul_(far), rows)
        return rates.view(-1, groups)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of both ends and the assignments."""
        target, source, assignment = ctx.saved_tensors
        edges, needs = ctx.edges, ctx.needs_input_grad
        grad = grad.view(assignment.size(0), -1, assignment.size(2))
        pieces: list[list[Tensor]] = [[], [], []]
        for near, far, rows in _blocks(edges, target, source, assignment):
            sent = grad @ rows.mT
            if needs[0]:
                pieces[0].append(edges.pattern(1).sum_edges((sent * far).flatten(0, 1)))
            if needs[1]:
                pieces[1].append(edges.pattern(1, True).sum_edges((sent * near).flatten(0, 1)))
            if needs[2]:
                # Ten times as fast on a CPU as the product of the transposes.
                pieces[2].append((grad.mT @ near.mul_(far)).mT)
        return *(torch.cat(p, dim=1) if p else None for p in pieces), None


def _blocks(
    edges: Adjacency, target: Tensor, source: Tensor, assignment: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Features at the two ends of every edge, and the assignment, some communities at a time."""
    graphs, _, groups = assignment.shape
    size = max(groups, GROUPED_NUMBERS // max(edges.source.numel(), 1))
    parts = (target.split(size, 1), source.split(size, 1), assignment.split(size, 1))
    for near, far, rows in zip(*parts, strict=True):
        ends = near.index_select(0, edges.target), far.index_select(0, edges.source)
        yield *(end.view(graphs, -1, rows.size(1)) for end in ends), rows


def aggregate(x: Tensor, edge_index: EdgeIndex, edge_weight: Tensor | None) -> Tensor:
    r"""Sum each node's neighbours in every community, weighted by the community's share.

    .. math:: y_{jk} = \sum_{(i, j) \in E} w_{ijk} \, x_{ik}

    Args:
        x: Features [N, K, D], one slice per community.
        edge_index: Edges [2, E] (or an :class:`Adjacency`), flowing from row 0 to row 1.
        edge_weight: Share of each edge in each community [E, K]; None counts every edge as one.

    Returns:
        Sums [N, K, D]. Gradients flow to ``x`` and ``edge_weight`` in O(N K D + E K) memory.

    Example:
        >>> x = torch.tensor([[[1.0]], [[10.0]]])
        >>> aggregate(x, torch.tensor([[0], [1]]), torch.tensor([[0.5]])).flatten()
        tensor([0.0000, 0.5000])
    """
    edges = as_adjacency(edge_index, x.size(0))
    if edge_weight is not None:
        expected = (edges.edge_index.size(1), x.size(1))
        if edge_weight.shape != expected:
            found = f"a column per community, {expected}, got {tuple(edge_weight.shape)}"
            raise ValueError(f"edge_weight must have a row per edge and {found}")
        kind = torch.promote_types(x.dtype, edge_weight.dtype)
        x, edge_weight = x.to(kind), edge_weight.to(kind)
    return edges.sum_neighbours(x, edge_weight)


def edge_dot(target: Tensor, source: Tensor, edge_index: EdgeIndex) -> Tensor:
    r"""Dot products between the two ends of every edge, community by community.

    .. math:: d_{ek} = \langle t_{jk}, s_{ik} \rangle \quad \text{for edge } e = (i, j)

    The adjoint of :func:`aggregate` with respect to its weights: products [E, K] of features
    [N, K, D] read at ``edge_index[1]`` and at ``edge_index[0]``.
    """
    return as_adjacency(edge_index, target.size(0)).dot_ends(target, source)
