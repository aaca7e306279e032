"""What many runs train on, step by step, and what they are validated on."""

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.executor import Examples
from vepm.scale.large import LargeGraph
from vepm.scale.many.edges import SharedEdges
from vepm.scale.many.features import SharedFeatures
from vepm.scale.many.padding import Size, plan
from vepm.scale.many.stacked import StackedModels
from vepm.scale.seeding import seed_of


class StackedBatch(Protocol):
    """A batch of every run."""

    @property
    def parts(self) -> Any:
        """What differs between runs: tensors [R, ...]."""

    def local(self, parts: Any) -> tuple[GraphBatch, Tensor]:
        """One run's batch and the rows of its labels, under ``vmap``."""


class PlannedBatch(Protocol):
    """What a batch of every run is made from in the step that needs it."""

    @property
    def size(self) -> Hashable:
        """What batches are padded to; those of one size can share a CUDA graph."""

    @property
    def labels(self) -> list[int]:
        """Number of labels of each run."""

    def laid_out(self) -> StackedBatch:
        """The batch."""

    def tensors(self) -> Sequence[Tensor | None]:
        """All that differs from batch to batch of one size."""


def shared(batch: GraphBatch) -> GraphBatch:
    """A batch that all runs read."""
    edges = SharedEdges(batch.edges.edge_index, batch.edges.num_nodes, kinds=batch.edges.kinds)
    return dataclasses.replace(batch, x=SharedFeatures.of(batch.x), edges=edges)


@dataclass(frozen=True, eq=False)
class SharedBatch:
    """One graph for all runs, of whose nodes each learns from its own."""

    batch: GraphBatch
    parts: Tensor
    """Training nodes of each run [R, n]."""
    labels: list[int] = field(init=False)
    size: None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", [self.parts.size(1)] * self.parts.size(0))

    def local(self, parts: Tensor) -> tuple[GraphBatch, Tensor]:
        """The graph, and one run's training nodes."""
        return self.batch, parts

    def laid_out(self) -> Self:
        """Itself."""
        return self

    def tensors(self) -> list[Tensor | None]:
        """None: there is only one such batch."""
        return []


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

    def epoch(self, epoch: int) -> list[PlannedBatch]:
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


class Validation:
    """Accuracy and loss of every run on the nodes or graphs it validates and tests on."""

    def __init__(self, examples: Sequence[Examples]) -> None:
        source = examples[0].source
        assert not isinstance(source, LargeGraph)
        pieces = [source] if isinstance(source, GraphBatch) else source.pieces
        self.pieces = [shared(piece) for piece in pieces]
        # Unknown labels have no role.
        self.y = source.y.clamp_min(0)
        self.roles = {
            "val": _masks([own.val for own in examples], source.y),
            "test": _masks([own.test for own in examples], source.y),
        }

    @torch.no_grad()
    def metrics(self, models: StackedModels) -> dict[str, Tensor]:
        """Values by name [R]; those of a role that a run does not have mean nothing."""
        models.model.eval()
        logits = torch.cat([models.each(_scores(piece)) for piece in self.pieces], dim=1)
        hits = logits.argmax(2) == self.y
        y = self.y.expand(hits.shape)
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), y, reduction="none")
        found = {}
        for role, mask in self.roles.items():
            count = mask.sum(1).clamp_min(1)
            found[f"{role}_accuracy"] = (hits & mask).sum(1).double() / count
            found[f"{role}_loss"] = losses.double().where(mask, 0).sum(1) / count
        return found


def _scores(piece: GraphBatch) -> Any:
    def scores(model: Any) -> Tensor:
        logits: Tensor = model(piece.x, piece.edges, piece.batch, piece.num_graphs).logits
        return logits

    return scores


def _masks(rows: Sequence[Tensor | None], y: Tensor) -> Tensor:
    masks = torch.zeros(len(rows), y.numel(), dtype=torch.bool)
    for mask, own in zip(masks, rows, strict=True):
        if own is not None:
            mask[own] = True
    return masks.to(y.device)
