"""Graphs and sparse features under ``vmap``: one pass over the edges serves all runs."""

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


def merged(function: Callable[..., Tensor], axis: int, *arguments: Any) -> Tensor:
    """Call a function once, with the runs of all tensors merged into an axis of them."""
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    others = [a for a in arguments if not isinstance(a, Tensor)]

    def rule(runs: int, dims: Dims, *tensors: Tensor) -> tuple[Tensor, int]:
        joined = [beside(t, d, axis, runs) for t, d in zip(tensors, dims, strict=True)]
        return apart(function(*joined, *others), axis, runs)

    return across(rule, *tensors)


@dataclass(frozen=True, eq=False)
class SharedEdges(Adjacency):
    """A graph that all runs learn from; the kernels see them as additional communities."""

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum edge values [E, K] over the edges that end in each node [N, K]."""
        return merged(super().sum_at_target, 1, values)

    def sum_neighbours(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Weighted sums of neighbours [N, K, D]; runs with equal weights become channels."""
        plain = super().sum_neighbours

        def rule(runs: int, dims: Dims, x: Tensor, *weights: Tensor) -> tuple[Tensor, int]:
            if not weights or dims[1] is None:
                weight = weights[0] if weights else None
                return apart(plain(beside(x, dims[0], 2, runs), weight), 2, runs)
            heads = (beside(t, d, 1, runs) for t, d in zip((x, *weights), dims, strict=True))
            return apart(plain(*heads), 1, runs)

        return across(rule, x) if weight is None else across(rule, x, weight)

    def dot_ends(self, target: Tensor, source: Tensor) -> Tensor:
        """Dot products between the ends of every edge [E, K]."""
        return merged(super().dot_ends, 1, target, source)

    def group_ends(self, target: Tensor, source: Tensor, assignment: Tensor) -> Tensor:
        """Products of the ends of every edge, communities gathered into groups [E, K]."""
        plain = super().group_ends

        def rule(runs: int, dims: Dims, *tensors: Tensor) -> tuple[Tensor, int]:
            each = [runs_first(t, d, runs) for t, d in zip(tensors, dims, strict=True)]
            return torch.stack([plain(*own) for own in zip(*each, strict=True)]), 0

        return across(rule, target, source, assignment)


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnEdges(Adjacency):
    """The edges of one run where each run has a graph of its own, all of one size."""

    union: Adjacency  # the graphs of all runs joined into one, run after run

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum edge values [E, K] over the edges that end in each node [N, K]."""
        return merged(self.union.sum_at_target, 0, values)

    def sum_neighbours(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Weighted sums of neighbours [N, K, D]."""
        return merged(self.union.sum_neighbours, 0, x, weight)

    def dot_ends(self, target: Tensor, source: Tensor) -> Tensor:
        """Dot products between the ends of every edge [E, K]."""
        return merged(self.union.dot_ends, 0, target, source)

    def group_ends(self, target: Tensor, source: Tensor, assignment: Tensor) -> Tensor:
        """Products of the ends of every edge, communities gathered into groups [E, K]."""
        plain = self.union.group_ends

        def rule(runs: int, dims: Dims, *tensors: Tensor) -> tuple[Tensor, int]:
            near, far, own = (runs_first(t, d, runs) for t, d in zip(tensors, dims, strict=True))
            return apart(plain(near.flatten(0, 1), far.flatten(0, 1), own), 0, runs)

        return across(rule, target, source, assignment)


class SharedFeatures(SparseFeatures):
    """Sparse features that all runs read, perhaps with different values.

    Where the values are equal, one product serves the weights of all runs; where dropout has made
    them differ, the matrices form a block-diagonal one.
    """

    _blocks: dict[int, SparseFeatures]

    @classmethod
    def of(cls, x: Features) -> Features:
        """The same features, to be read by many runs."""
        if isinstance(x, Tensor):
            return x
        shared = object.__new__(cls)
        shared.__dict__ |= x.__dict__ | {"_normalised": {}, "_blocks": {}}
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
            first = self.row_pointer.new_tensor(range(runs)).long()[:, None]
            starts = (self.row_pointer[:-1] + first * self.rows.numel()).flatten()
            pointer = starts.new_tensor([runs * self.rows.numel()])
            columns = (self.columns + first * self.shape[1]).flatten()
            self._blocks[runs] = SparseFeatures(
                torch.cat([starts, pointer]), columns, columns, runs * self.shape[1]
            )
        return self._blocks[runs]
