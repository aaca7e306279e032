"""Graphs and sparse features under ``vmap``: one pass over the edges serves all runs."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vepm.kernels.aggregation import Adjacency, GroupedDot, WeightedSum
from vepm.kernels.features import Features, SparseFeatures
from vepm.kernels.patterns import apply

Dims = tuple[int | None, ...]
Rule = Callable[..., tuple[Tensor, int]]
"""From the number of runs, the tensors' run axes (or None) and the tensors to one with its axis."""


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


def beside(tensor: Tensor | None, dim: int | None, axis: int, runs: int) -> Any:
    """Move the run axis to the given position and merge it with the axis after it."""
    if tensor is None:
        return None
    if dim is None:
        tensor, dim = tensor.expand(runs, *tensor.shape), 0
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
    """How kernels see the runs: with 1, as communities of the shared graph; with 0, as nodes."""

    @classmethod
    def shared(cls, edges: Adjacency) -> "RunEdges":
        """A graph that all runs learn from."""
        return cls(edges.edge_index, edges.num_nodes, **edges.attributes, whole=edges, axis=1)

    @functools.cached_property
    def links(self) -> Adjacency:
        """The links of a directed graph, each in its own direction alone."""
        return self if self.arcs is None else RunEdges.shared(self.whole.links)

    def compute(self, function: type[torch.autograd.Function], *tensors: Tensor | None) -> Tensor:
        """Apply a function of the graph to the tensors of all runs."""
        compute, axis = functools.partial(self.whole.compute, function), self.axis

        def rule(runs: int, dims: Dims, *tensors: Tensor | None) -> tuple[Tensor, int]:
            pairs = list(zip(tensors, dims, strict=True))
            if axis == 1 and function is GroupedDot:
                # Every run gathers communities in its own way.
                own = (beside(*pair, 0, runs).chunk(runs) for pair in pairs)
                return torch.stack([compute(*of_run) for of_run in zip(*own, strict=True)]), 0
            if axis == 1 and function is WeightedSum and dims[1] is None:
                # Equal weights: the runs become channels.
                return apart(compute(beside(*pairs[0], 2, runs), tensors[1]), 2, runs)
            return apart(compute(*(beside(*pair, axis, runs) for pair in pairs)), axis, runs)

        return apply(_WithRule, rule, *tensors)


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

        return apply(_WithRule, rule, self.values, weight)

    def _diagonal(self, runs: int) -> SparseFeatures:
        """The pattern repeated along the diagonal."""
        if runs not in self._blocks:
            run = torch.arange(runs, device=self.rows.device)[:, None]
            rows = (self.rows + run * self.shape[0]).flatten()
            columns = (self.columns + run * self.shape[1]).flatten()
            shape = (runs * self.shape[0], runs * self.shape[1])
            self._blocks[runs] = SparseFeatures(rows, columns, columns, shape)
        return self._blocks[runs]
