"""Many runs trained as one program, which the training loop treats like one run."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from vepm.nn import VEPM
from vepm.objective import Terms
from vepm.scale.batches import GraphBatch
from vepm.scale.cuda_graphs import CUDAGraphs, worth_capturing
from vepm.scale.executor import Examples, Loss, Row
from vepm.scale.many.batches import (
    GraphBatches,
    PlannedBatch,
    SharedBatch,
    StackedBatch,
    Validation,
)
from vepm.scale.many.stacked import StackedModels
from vepm.scale.optimizing import descend
from vepm.scale.seeding import seed_draws

T = TypeVar("T")


class ManyRuns:
    """Calls the models of many runs at once with ``vmap``.

    A run that has finished a phase early waits for the others: their steps change its weights
    too, and it gets back those that were kept when the phase ends.

    Args:
        models: Models of the same settings, one for each run.
        examples: What each run learns from, over one source.
        seeds: Seed of each run.
        batch_size: Graphs per step; 0 for all.
    """

    def __init__(
        self,
        models: Sequence[VEPM],
        examples: Sequence[Examples],
        seeds: Sequence[int],
        batch_size: int,
    ) -> None:
        self.models, self.examples, self.seeds = models, examples, seeds
        self.batch_size = batch_size
        self.stacked = StackedModels(models)
        self.device = self.stacked.device
        self.validation = Validation(examples)
        self._batches: GraphBatches | None = None
        self._graph: SharedBatch | None = None
        if isinstance(examples[0].source, GraphBatch):
            rows = torch.stack([own.train for own in examples]).to(self.device)
            self._graph = SharedBatch(self.validation.pieces[0], rows)
        edges = (piece.edges.edge_index for piece in self.validation.pieces)
        self._graphs = CUDAGraphs(on=all(map(worth_capturing, edges)))

    def encoder_parameters(self) -> Sequence[Tensor]:
        """Stacked parameters of all encoders."""
        return self.stacked.encoder_parameters()

    def predictor_parameters(self) -> Sequence[Tensor]:
        """Stacked parameters of all banks and composers."""
        return self.stacked.predictor_parameters()

    def undecayed_parameters(self) -> Sequence[Tensor]:
        """Stacked parameters that weight decay leaves alone."""
        return self.stacked.undecayed_parameters()

    def begin(self, phase: str, epochs: int) -> None:
        """Plan the batches of a phase."""
        self._graphs.forget()
        if self._graph is None:
            self._batches = GraphBatches(self.examples, self.seeds, phase, epochs, self.batch_size)

    def batches(self, phase: str, epoch: int) -> tuple[int, Sequence[PlannedBatch]]:
        """Number of steps of an epoch, and a batch of every run for each."""
        self.stacked.model.train()
        batches: Sequence[PlannedBatch]
        if self._graph is not None:
            batches = [self._graph]
        else:
            assert self._batches is not None
            batches = self._batches.epoch(epoch)
        seed_draws(*self.seeds, phase, epoch)
        return len(batches), batches

    def hold(self, function: Callable[[VEPM, GraphBatch], Any]) -> Any:
        """Call a function with the one graph and every model; None if there are many graphs."""
        if self._graph is None:
            return None
        self.stacked.model.train()

        def work(batch: StackedBatch) -> Any:
            return self._on(batch, lambda model, graphs, _: function(model, graphs))

        return self._graphs.run("hold", work, self._graph)

    def step(
        self,
        name: str,
        loss: Loss,
        batch: PlannedBatch,
        optimizers: Sequence[torch.optim.Optimizer],
        *held: Any,
    ) -> Terms:
        """Step down the losses of all runs."""

        def work(planned: PlannedBatch, *held: Any) -> Terms:
            terms = self._terms(planned.laid_out(), loss, *held)
            descend(terms.loss.sum(), *optimizers)
            return terms.detached()

        return self._graphs.run((name, batch.size), work, batch, *held)

    def _terms(self, batch: StackedBatch, loss: Loss, *held: Any) -> Terms:
        """Terms of every run [R]."""

        def given(*arguments: Any) -> dict[str, Tensor]:
            terms = loss(*arguments)._asdict()
            return {name: value for name, value in terms.items() if value is not None}

        return Terms(**self._on(batch, given, *held))

    def _on(self, batch: StackedBatch, function: Callable[..., T], *own: Any) -> T:
        """Call a function with every run's model, batch, rows and own tensors."""
        padding = self.stacked.padding

        def one(model: VEPM, parts: Any, *own: Any) -> T:
            graphs, rows = batch.local(parts)
            padding.nodes = getattr(graphs, "node_mask", None)
            try:
                return function(model, graphs, rows, *own)
            finally:
                padding.nodes = None

        return self.stacked.each(one, batch.parts, *own)

    def sum(self, values: Tensor) -> Tensor:
        """The values themselves: there is one process."""
        return values

    def weight_sums(self) -> Tensor:
        """Sum of the weights of each run [R]."""
        weights = self.stacked.parameters.values()
        return torch.stack([w.detach().flatten(1).sum(1) for w in weights]).sum(0)

    def watch(self) -> Callable[[], list[Row]]:
        """Accuracy and loss of each role and run."""
        found = self._graphs.run("watch", lambda: self.validation.metrics(self.stacked))
        return lambda: self._rows(found)

    def _rows(self, found: dict[str, Tensor]) -> list[Row]:
        columns = torch.stack([value.double() for value in found.values()]).tolist()
        rows = []
        for run, examples in enumerate(self.examples):
            row = {name: column[run] for name, column in zip(found, columns, strict=True)}
            rows.append({k: v for k, v in row.items() if k.partition("_")[0] in examples.watched})
        return rows

    def keep(self, runs: Sequence[int]) -> None:
        """Remember the present weights of some runs."""
        self.stacked.keep(runs)

    def restore(self) -> None:
        """Go back to the weights that were kept, and copy all weights to the models."""
        self.stacked.restore()
        for model, weights in zip(self.models, self.stacked.states(), strict=True):
            model.load_state_dict(weights)
            model.eval()
