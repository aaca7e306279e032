"""Graphs under ``vmap``: one pass over the edges serves all runs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vepm.nn import Adjacency
from vepm.scale.many.vmap import across

Dims = tuple[int | None, ...]


def beside(tensor: Tensor, dim: int | None, axis: int, runs: int) -> Tensor:
    """Move the run axis to the given position and merge it with the axis after it."""
    if dim is None:
        sizes = (*tensor.shape[:axis], runs, *tensor.shape[axis:])
        return tensor.unsqueeze(axis).expand(sizes).flatten(axis, axis + 1)
    return tensor.movedim(dim, axis).flatten(axis, axis + 1)


def apart(tensor: Tensor, axis: int, runs: int) -> tuple[Tensor, int]:
    """Undo :func:`beside`; also returns the position of the run axis."""
    return tensor.unflatten(axis, (runs, tensor.size(axis) // runs)), axis


@dataclass(frozen=True, eq=False)
class SharedEdges(Adjacency):
    """A graph that all runs learn from; the kernels see them as additional communities."""

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum edge values [E, K] over the edges that end in each node [N, K]."""
        plain = super().sum_at_target

        def rule(runs: int, dims: Dims, values: Tensor) -> tuple[Tensor, int]:
            return apart(plain(beside(values, dims[0], 1, runs)), 1, runs)

        return across(rule, values)

    def sum_neighbours(self, x: Tensor, weight: Tensor | None) -> Tensor:
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
        plain = super().dot_ends

        def rule(runs: int, dims: Dims, *ends: Tensor) -> tuple[Tensor, int]:
            heads = (beside(end, dim, 1, runs) for end, dim in zip(ends, dims, strict=True))
            return apart(plain(*heads), 1, runs)

        return across(rule, target, source)

    def share_ends(self, target: Tensor, source: Tensor, inverse_temperature: float) -> Tensor:
        """Softmax over k of the scaled dot products [E, K]."""
        return torch.softmax(inverse_temperature * self.dot_ends(target, source), dim=-1)

    def group_ends(self, target: Tensor, source: Tensor, assignment: Tensor) -> Tensor:
        """Products of the ends of every edge, communities gathered into groups [E, K]."""
        plain = super().group_ends

        def rule(runs: int, dims: Dims, *tensors: Tensor) -> tuple[Tensor, int]:
            each = [
                [t] * runs if d is None else t.unbind(d) for t, d in zip(tensors, dims, strict=True)
            ]
            return torch.stack([plain(*own) for own in zip(*each, strict=True)]), 0

        return across(rule, target, source, assignment)


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnEdges(Adjacency):
    """The edges of one run where each run has a graph of its own, all of one size."""

    union: Adjacency
    """The graphs of all runs joined into one, run after run."""
    in_degree: Tensor
    """Number of edges that end in each node [N]."""

    @property
    def degree(self) -> Tensor:
        """Number of edges that end in each node [N]."""
        return self.in_degree

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum edge values [E, K] over the edges that end in each node [N, K]."""
        return self._in_union("sum_at_target", values)

    def sum_neighbours(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Weighted sums of neighbours [N, K, D]."""
        if weight is None:
            return self._in_union("sum_neighbours", x, None)
        return self._in_union("sum_neighbours", x, weight)

    def dot_ends(self, target: Tensor, source: Tensor) -> Tensor:
        """Dot products between the ends of every edge [E, K]."""
        return self._in_union("dot_ends", target, source)

    def share_ends(self, target: Tensor, source: Tensor, inverse_temperature: float) -> Tensor:
        """Softmax over k of the scaled dot products [E, K]."""
        return self._in_union("share_ends", target, source, inverse_temperature)

    def group_ends(self, target: Tensor, source: Tensor, assignment: Tensor) -> Tensor:
        """Products of the ends of every edge, communities gathered into groups [E, K]."""
        plain = self.union.group_ends

        def rule(
            runs: int, dims: Dims, target: Tensor, source: Tensor, groups: Tensor
        ) -> tuple[Tensor, int]:
            near, far = beside(target, dims[0], 0, runs), beside(source, dims[1], 0, runs)
            own = groups.expand(runs, -1, -1) if dims[2] is None else groups.movedim(dims[2], 0)
            return apart(plain(near, far, own), 0, runs)

        return across(rule, target, source, assignment)

    def _in_union(self, name: str, *arguments: Tensor | float | None) -> Tensor:
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        others = [a for a in arguments if not isinstance(a, Tensor)]
        plain = getattr(self.union, name)

        def rule(runs: int, dims: Dims, *tensors: Tensor) -> tuple[Tensor, int]:
            joined = [beside(t, d, 0, runs) for t, d in zip(tensors, dims, strict=True)]
            return apart(plain(*joined, *others), 0, runs)

        return across(rule, *tensors)
