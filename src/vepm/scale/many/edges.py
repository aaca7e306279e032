"""Graphs and sparse features under ``vmap``: one pass over the edges serves all runs."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from vepm.kernels.features import Features
from vepm.kernels.patterns import apply
from vepm.nn import Adjacency, SparseFeatures

Dims = tuple[int | None, ...]
Rule = Callable[..., tuple[Tensor, int]]
"""Given the number of runs, the run axis of each tensor (or None) and the tensors, returns a tensor
and its run axis."""


class _WithRule(torch.autograd.Function):
    @staticmethod
    def forward(rule: Rule, *tensors: Tensor) -> Tensor:
        # All runs have the same tensors. Weights differ, so nothing here needs a gradient.
        out, axis = rule(1, (None,) * len(tensors), *tensors)
        return out.select(axis, 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Dims, rule: Rule, *tensors: Tensor) -> tuple[Tensor, int]:
        return rule(info.batch_size, in_dims[1:], *tensors)


def across(rule: Rule, *tensors: Tensor) -> Tensor:
    """Call a rule with the tensors of all runs, from a function under ``vmap``."""
    return apply(_WithRule, rule, *tensors)


def beside(tensor: Tensor, dim: int | None, axis: int, runs: int) -> Tensor:
    """Move the run axis to the given position and merge it with the axis after it."""
    if dim is None:
        sizes = (*tensor.shape[:axis], runs, *tensor.shape[axis:])
        return tensor.unsqueeze(axis).expand(sizes).flatten(axis, axis + 1)
    return tensor.movedim(dim, axis).flatten(axis, axis + 1)


def apart(tensor: Tensor, axis: int, runs: int) -> tuple[Tensor, int]:
    """Undo :func:`beside`; also returns the position of the run axis."""
    return tensor.unflatten(axis, (runs, tensor.size(axis) // runs)), axis


def runs_first(tensor: Tensor, dim: int | None, runs: int) -> Tensor:
    """The tensor of each run [R, ...], the same one again if all share it."""
    return tensor.expand(runs, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def merged(function: Callable[..., Tensor], axis: int, *tensors: Tensor) -> Tensor:
    """Call a function once, with the runs of all tensors merged into an axis of them."""

    def rule(runs: int, dims: Dims, *tensors: Tensor) -> tuple[Tensor, int]:
        joined = [beside(t, d, axis, runs) for t, d in zip(tensors, dims, strict=True)]
        return apart(function(*joined), axis, runs)

    return across(rule, *tensors)


@dataclass(frozen=True, eq=False, kw_only=True)
class ManyEdges(Adjacency):
    """The edges of each run, under ``vmap``: those of one graph for all, or of a graph of its own.

    Runs on one graph are additional communities to the kernels, graphs of their own are one union.
    """

    graph: Adjacency
    """The graph of all runs, or the graphs of all, each of one size, joined run after run."""
    shared: bool = True
    """Whether all runs have the same graph."""

    @classmethod
    def of(cls, graph: Adjacency) -> Self:
        """A graph that all runs learn from."""
        return cls(graph.edge_index, graph.num_nodes, graph=graph, **graph.attributes)

    @property
    def degree(self) -> Tensor:
        """Number of edges that end in each node, or the sum of their message weights [N]."""
        if self.shared:
            return super().degree
        ones = torch.ones_like(self.target)
        return ones.new_zeros(self.num_nodes).scatter_add(0, self.target, ones)

    @functools.cached_property
    def links(self) -> Adjacency:
        """The links of a directed graph, each in its own direction alone."""
        return self.of(self.graph.links) if self.shared else self

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum edge values [E, K] over the edges that end in each node [N, K]."""
        return merged(self.graph.sum_at_target, int(self.shared), values)

    def sum_neighbours(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Weighted sums of neighbours [N, K, D]; runs with equal weights become channels."""

        def rule(runs: int, dims: Dims, x: Tensor, *weight: Tensor) -> tuple[Tensor, int]:
            if self.shared and dims[1:] in ((), (None,)):
                joined = beside(x, dims[0], 2, runs)
                return apart(self.graph.sum_neighbours(joined, *weight), 2, runs)
            axis, given = int(self.shared), zip((x, *weight), dims, strict=True)
            return apart(
                self.graph.sum_neighbours(*(beside(t, d, axis, runs) for t, d in given)), axis, runs
            )

        return across(rule, x) if weight is None else across(rule, x, weight)

    def dot_ends(self, target: Tensor, source: Tensor) -> Tensor:
        """Dot products between the ends of every edge [E, K]."""
        return merged(self.graph.dot_ends, int(self.shared), target, source)

    def group_ends(self, target: Tensor, source: Tensor, assignment: Tensor) -> Tensor:
        """Products of the ends of every edge, communities gathered into groups [E, K]."""
        plain = self.graph.group_ends

        def rule(runs: int, dims: Dims, *tensors: Tensor) -> tuple[Tensor, int]:
            near, far, own = (runs_first(t, d, runs) for t, d in zip(tensors, dims, strict=True))
            if self.shared:
                return torch.stack([plain(*each) for each in zip(near, far, own, strict=True)]), 0
            return apart(plain(near.flatten(0, 1), far.flatten(0, 1), own), 0, runs)

        return across(rule, target, source, assignment)


class SharedFeatures(SparseFeatures):
    """Sparse features that all runs read, perhaps with different values."""

    @classmethod
    def of(cls, x: Features) -> Features:
        """The same features, to be read by many runs."""
        if isinstance(x, Tensor):
            return x
        shared = object.__new__(cls)
        shared.__dict__ |= x.__dict__ | {"_normalised": {}}
        return shared

    def __matmul__(self, weight: Tensor) -> Tensor:
        plain = SparseFeatures.__matmul__

        def rule(runs: int, dims: Dims, *tensors: Tensor) -> tuple[Tensor, int]:
            each = (runs_first(t, d, runs) for t, d in zip(tensors, dims, strict=True))
            own = zip(*each, strict=True)
            return torch.stack([plain(self.with_values(v), w) for v, w in own]), 0

        return across(rule, self.values, weight)
