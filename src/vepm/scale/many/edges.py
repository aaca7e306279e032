"""Graphs and sparse features under ``vmap``: one pass over the edges serves all runs."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vepm.kernels.features import Features
from vepm.kernels.patterns import apply
from vepm.nn import Adjacency, SparseFeatures

Dims = tuple[int | None, ...]
Rule = Callable[..., tuple[Tensor, int]]
"""From the number of runs, the run axis of each tensor (or None) and the tensors to a tensor and
its run axis."""


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


@dataclass(frozen=True, eq=False, kw_only=True)
class RunEdges(Adjacency):
    """The edges of one run, whose sums are computed together with those of all other runs."""

    whole: Adjacency
    """The graph that all runs share, or the graphs of all, of one size, joined run after run."""
    axis: int
    """What the kernels see the runs as: with 1, communities of the shared graph; with 0, nodes."""

    @classmethod
    def shared(cls, edges: Adjacency) -> "RunEdges":
        """A graph that all runs learn from."""
        return cls(edges.edge_index, edges.num_nodes, **edges.attributes, whole=edges, axis=1)

    @functools.cached_property
    def links(self) -> Adjacency:
        """The links of a directed graph, each in its own direction alone."""
        return self if self.arcs is None else RunEdges.shared(self.whole.links)

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum edge values [E, K] over the edges that end in each node [N, K]."""
        return across(functools.partial(self._merged, self.whole.sum_at_target), values)

    def dot_ends(self, target: Tensor, source: Tensor) -> Tensor:
        """Dot products between the ends of every edge [E, K]."""
        return across(functools.partial(self._merged, self.whole.dot_ends), target, source)

    def sum_neighbours(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Weighted sums of neighbours [N, K, D]."""
        plain = self.whole.sum_neighbours

        def rule(runs: int, dims: Dims, x: Tensor, *weights: Tensor) -> tuple[Tensor, int]:
            if self.axis == 1 and dims[1:] in ((), (None,)):
                # Equal weights: the runs become channels.
                return apart(plain(beside(x, dims[0], 2, runs), *weights), 2, runs)
            return self._merged(plain, runs, dims, x, *weights)

        return across(rule, x) if weight is None else across(rule, x, weight)

    def _merged(
        self, function: Callable[..., Tensor], runs: int, dims: Dims, *tensors: Tensor
    ) -> tuple[Tensor, int]:
        joined = (beside(t, d, self.axis, runs) for t, d in zip(tensors, dims, strict=True))
        return apart(function(*joined), self.axis, runs)

    def group_ends(self, target: Tensor, source: Tensor, assignment: Tensor) -> Tensor:
        """Products of the ends of every edge, communities gathered into groups [E, K]."""
        plain = self.whole.group_ends

        def rule(runs: int, dims: Dims, *tensors: Tensor) -> tuple[Tensor, int]:
            of_runs = [
                tensor.expand(runs, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
                for tensor, dim in zip(tensors, dims, strict=True)
            ]
            if self.axis == 0:
                near, far, groups = of_runs
                return apart(plain(near.flatten(0, 1), far.flatten(0, 1), groups), 0, runs)
            return torch.stack([plain(*own) for own in zip(*of_runs, strict=True)]), 0

        return across(rule, target, source, assignment)


class SharedFeatures(SparseFeatures):
    """Sparse features that all runs read; values that differ form a block diagonal."""

    _blocks: dict[int, SparseFeatures]

    @classmethod
    def of(cls, x: Features) -> Features:
        """The same features, to be read by many runs."""
        if isinstance(x, Tensor):
            return x
        shared = object.__new__(cls)
        shared.__dict__ |= x.__dict__ | {"normalised": {}, "_blocks": {}}
        return shared

    def __matmul__(self, weight: Tensor) -> Tensor:
        def rule(runs: int, dims: Dims, values: Tensor, weight: Tensor) -> tuple[Tensor, int]:
            if dims[0] is None:
                joined = beside(weight, dims[1], 1, runs)
                return apart(SparseFeatures.__matmul__(self.with_values(values), joined), 1, runs)
            blocks = self._diagonal(runs).with_values(beside(values, dims[0], 0, runs))
            return apart(blocks @ beside(weight, dims[1], 0, runs), 0, runs)

        return across(rule, self.values, weight)

    def _diagonal(self, runs: int) -> SparseFeatures:
        """The pattern repeated along the diagonal."""
        if runs not in self._blocks:
            run = torch.arange(runs, device=self.rows.device)[:, None]
            rows = (self.rows + run * self.shape[0]).flatten()
            columns = (self.columns + run * self.shape[1]).flatten()
            shape = (runs * self.shape[0], runs * self.shape[1])
            self._blocks[runs] = SparseFeatures(rows, columns, columns, shape)
        return self._blocks[runs]
