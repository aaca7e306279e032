"""Steps of many small kernels captured as CUDA graphs and replayed with a single launch."""

import contextlib
import functools
import gc
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

T = TypeVar("T")

MOST_EDGES = 2**21
"""Edges up to which a step is captured; larger ones keep a GPU busy without it, and a CUDA graph
holds on to the memory of its step."""
WARMUP = 2  # eager runs of a step before it is captured, so that whatever is cached exists


@dataclass
class _Step:
    """A step on inputs of certain shapes, always in the same memory."""

    run: Callable[[], Any]
    tensors: list[Tensor]  # of its inputs
    times: int = 0


class CUDAGraphs:
    """Runs steps and, on a GPU, captures those that repeat as CUDA graphs."""

    def __init__(self, on: bool) -> None:
        self.on = on
        self._steps: dict[Hashable, _Step] = {}
        self._pool: Any = None

    def forget(self) -> None:
        """Drop all CUDA graphs, because the memory they write to is gone."""
        self._steps.clear()
        self._pool = None

    def run(self, name: Hashable, function: Callable[..., T], *inputs: Any) -> T:
        """Call a function with inputs; functions of one name are interchangeable.

        It may change weights in place, must not synchronise with the GPU, and must return detached
        tensors: an autograd graph from before the capture would lead out of it. Tensors in its
        inputs may later be overwritten; all else in them must be the same for one name.
        """
        if not self.on:
            return function(*inputs)
        tensors = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
        key = name, tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if key not in self._steps:
            self._steps[key] = _Step(functools.partial(function, *inputs), tensors)
        step = self._steps[key]
        for mine, other in zip(step.tensors, tensors, strict=True):
            if mine is not other:
                mine.copy_(other)
        step.times += 1
        if step.times == WARMUP + 1:
            step.run = self._captured(step.run)
        found: T = step.run()
        return found

    def _captured(self, run: Callable[[], Any]) -> Callable[[], Any]:
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with _no_garbage_collection(), torch.cuda.graph(graph, pool=self._pool):
            out = run()

        def replay() -> Any:
            graph.replay()
            # The next replay writes to the same memory.
            return tree_map_only(Tensor, Tensor.clone, out)

        return replay


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage now: a CUDA graph of an earlier training, freed in a capture, fails it."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def worth_capturing(edge_index: Tensor, device: str | None = None) -> bool:
    """Whether launching the kernels of a step takes long compared with running them."""
    return (device or edge_index.device.type) == "cuda" and edge_index.size(1) <= MOST_EDGES
