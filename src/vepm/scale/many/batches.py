"""What many runs train on, step by step, and what they are validated on."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.executor import Examples, seed_of
from vepm.scale.many.edges import SharedEdges, SharedFeatures
from vepm.scale.many.padding import Plan, Size, plan


def shared(batch: GraphBatch) -> GraphBatch:
    """A batch that all runs read."""
    own = batch.edges
    edges = SharedEdges(
        own.edge_index, own.num_nodes, kinds=own.kinds, weight=own.weight, arcs=own.arcs
    )
    return dataclasses.replace(batch, x=SharedFeatures.of(batch.x), edges=edges)


@dataclass(frozen=True, eq=False)
class SharedBatch:
    """One graph for all runs, of whose nodes each learns from its own."""

    batch: GraphBatch
    parts: Tensor
    """Training nodes of each run [R, n]."""
    size: None = None

    @property
    def labels(self) -> list[int]:
        """Number of labels of each run."""
        return [self.parts.size(1)] * self.parts.size(0)

    def local(self, parts: Tensor) -> tuple[GraphBatch, Tensor]:
        """The graph, and one run's training nodes."""
        return self.batch, parts

    def laid_out(self) -> Self:
        """Itself."""
        return self


class GraphBatches:
    """The batches of a phase, in the order a run of its own would take them.

    In every epoch all batches but the last are padded to the size of the largest, and so are the
    last ones. So a step that was captured can be replayed on all.

    Args:
        examples: What each run learns from.
        seeds: Seed of each.
        phase: ``"pretrain"`` or ``"finetune"``.
        epochs: Epochs of the phase, at most.
        batch_size: Graphs of a batch; 0 for all.
    """

    def __init__(
        self,
        examples: Sequence[Examples],
        seeds: Sequence[int],
        phase: str,
        epochs: int,
        batch_size: int,
    ) -> None:
        store = examples[0].source
        assert isinstance(store, GraphStore)
        self.store, self.phase, self.batch_size = store, phase, batch_size
        everything = torch.arange(len(store))
        self._runs = []
        for own, seed in zip(examples, seeds, strict=True):
            chosen = None if phase == "pretrain" else own.train
            self._runs.append((everything if chosen is None else chosen, seed))
        self._sizes: dict[bool, Size] = {True: Size(), False: Size()}
        for epoch in range(epochs):
            for is_last, parts in self._places(epoch):
                for graphs in parts:
                    self._sizes[is_last] = self._sizes[is_last].including(store, graphs)

    def epoch(self, epoch: int) -> list[Plan]:
        """The batches of an epoch."""
        return [
            plan(self.store, parts, self._sizes[is_last]) for is_last, parts in self._places(epoch)
        ]

    def _places(self, epoch: int) -> Iterator[tuple[bool, list[Tensor]]]:
        """For each batch, whether it is the last, and each run's graphs."""
        orders = []
        for chosen, seed in self._runs:
            generator = torch.Generator().manual_seed(seed_of(seed, self.phase, epoch))
            order = chosen[torch.randperm(chosen.numel(), generator=generator)]
            orders.append(order.split(self.batch_size or max(order.numel(), 1)))
        last = len(orders[0]) - 1
        for i, parts in enumerate(zip(*orders, strict=True)):
            yield i == last, list(parts)
