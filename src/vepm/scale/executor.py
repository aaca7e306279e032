"""How the steps of training are carried out, whatever the number of runs.

The training loop knows runs, phases and losses; an executor knows where the weights are and how a
loss is computed and minimised. :class:`OneRun` calls the model directly;
:class:`vepm.scale.many.ManyRuns` calls many models at once.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from vepm.nn import VEPM
from vepm.objective import Terms
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.clusters import Clusters
from vepm.scale.cuda_graphs import CUDAGraphs, worth_capturing
from vepm.scale.ddp import DataParallel
from vepm.scale.large import LargeGraph
from vepm.scale.optimizing import descend
from vepm.scale.processes import ProcessGroup
from vepm.scale.seeding import seed_draws

Source = GraphBatch | GraphStore | LargeGraph
"""What a model is applied to: a graph at once, many graphs, or a graph in chunks."""
Loss = Callable[..., Terms]
"""Called with a model, a batch, the labelled rows and perhaps tensors that are held."""
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Examples:
    """What a run learns from: graphs, and the roles of their nodes or of the graphs."""

    source: Source
    """One graph whose nodes are labelled, or a store of labelled graphs."""
    train: Tensor
    """Indices of the labelled nodes or graphs to learn from; empty to pretrain only."""
    val: Tensor
    """Indices of those that choose the epoch; empty to keep the last."""
    test: Tensor | None = None
    """Indices of those whose accuracy is recorded; they choose nothing."""
    clusters: Clusters | None = None
    """Clusters of a large graph; None for other sources."""
    class_weights: Tensor | None = None
    """Weight of the labels of each class, all above 0; None weighs all alike."""

    @property
    def watched(self) -> dict[str, Tensor]:
        """The roles that accuracies are recorded of, and their indices."""
        roles = {"val": self.val, "test": self.test}
        return {role: rows for role, rows in roles.items() if rows is not None and rows.numel()}


class StepBatch(Protocol):
    """What a step learns from."""

    @property
    def labels(self) -> Sequence[int]:
        """Number of labels of each run."""


class Executor(Protocol):
    """Carries out the steps of R runs that are in the same phase."""

    @property
    def examples(self) -> Sequence[Examples]:
        """What each run learns from."""

    @property
    def seeds(self) -> Sequence[int]:
        """Seed of each run."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""

    def encoder_parameters(self) -> Sequence[Tensor]:
        """Parameters of the encoder, of all runs."""

    def predictor_parameters(self) -> Sequence[Tensor]:
        """Parameters of the bank and the composer, of all runs."""

    def undecayed_parameters(self) -> Sequence[Tensor]:
        """Those of the predictor's that weight decay leaves alone, of all runs."""

    def begin(self, phase: str, epochs: int) -> None:
        """Prepare for a phase of at most so many epochs."""

    def batches(self, phase: str, epoch: int) -> tuple[int, Iterable[StepBatch]]:
        """Number of steps of an epoch and their batches; seeds all that is drawn in it."""

    def hold(self, function: Callable[[VEPM, GraphBatch], Any]) -> Any:
        """Call a function with the one graph of all steps; None if there is no such graph."""

    def step(
        self,
        name: str,
        loss: Loss,
        batch: Any,
        optimizers: Sequence[torch.optim.Optimizer],
        *held: Any,
    ) -> Terms:
        """Step down a loss; the terms have one value for each run."""

    def sum(self, values: Tensor) -> Tensor:
        """Values [n, R] summed over all processes."""

    def weight_sums(self) -> Tensor:
        """Sum of the weights of each run [R]; finite if they are."""

    def watch(self) -> Callable[[], list[Row]]:
        """Start to compute validation and test accuracies; the result is one row per run."""

    def keep(self, runs: Sequence[int]) -> None:
        """Remember the present weights of some runs."""

    def restore(self) -> None:
        """Give every run the weights that were last remembered for it."""


class OwnBatch(NamedTuple):
    """The batch of a single run."""

    batch: GraphBatch
    rows: Tensor
    """Indices of the labelled nodes or graphs."""

    @property
    def labels(self) -> list[int]:
        """Number of labels."""
        return [self.rows.numel()]


class OneRun:
    """Calls one model directly, perhaps in several processes, by clusters or as CUDA graphs.

    Args:
        model: The model; trained in place.
        examples: What to learn from.
        seed: Seed of all that is drawn.
        scores: Computes class scores of every node or graph.
        batch_size: Graphs per step; 0 for all.
        group: The processes that train the model.
        capture: Whether steps on one graph may be captured as CUDA graphs.
    """

    def __init__(
        self,
        model: VEPM,
        examples: Examples,
        seed: int,
        *,
        scores: Callable[[VEPM, Source], Tensor],
        batch_size: int = 0,
        group: ProcessGroup | None = None,
        capture: bool = True,
    ) -> None:
        self.model, self.examples, self.seeds = model, [examples], [seed]
        self.batch_size, self.group, self._scores = batch_size, group or ProcessGroup(), scores
        self.device = model.activation.device
        self.best_weights: dict[str, Tensor] | None = None
        self.parallel = None if self.group.alone else DataParallel(model, self.group)
        # Steps on one graph are alike; batches of graphs have many sizes.
        graph = examples.source if isinstance(examples.source, GraphBatch) else None
        alike = graph is not None and worth_capturing(graph.edges.edge_index)
        self._graphs = CUDAGraphs(on=capture and alike and self.parallel is None)

    def encoder_parameters(self) -> Sequence[Tensor]:
        """Parameters of the encoder."""
        return self.model.encoder_parameters()

    def predictor_parameters(self) -> Sequence[Tensor]:
        """Parameters of the bank and the composer."""
        return self.model.predictor_parameters()

    def undecayed_parameters(self) -> Sequence[Tensor]:
        """Those of the predictor's that weight decay leaves alone."""
        return self.model.undecayed_parameters()

    def begin(self, phase: str, epochs: int) -> None:
        """Forget the steps of the phase before."""
        self._graphs.forget()

    def batches(self, phase: str, epoch: int) -> tuple[int, Iterator[OwnBatch]]:
        """Number of steps of an epoch, and this process's share of each."""
        seed_draws(*self.seeds, phase, epoch)
        self.model.train()
        examples = self.examples[0]
        source = examples.source
        if isinstance(source, GraphBatch):
            return 1, iter([OwnBatch(source, examples.train.to(source.x.device))])
        if examples.clusters is not None:
            return examples.clusters.steps, (OwnBatch(*b) for b in examples.clusters.epoch())
        assert isinstance(source, GraphStore)
        chosen = torch.arange(len(source)) if phase == "pretrain" else examples.train
        order = chosen[torch.randperm(chosen.numel())]
        parts = order.split(self.batch_size or max(order.numel(), 1))
        self.group.diverge()
        return len(parts), (self._share(source, part) for part in parts)

    def _share(self, source: GraphStore, graphs: Tensor) -> OwnBatch:
        batch = source.share(graphs, self.group.rank, self.group.size)
        return OwnBatch(batch, torch.arange(batch.num_graphs, device=batch.x.device))

    def hold(self, function: Callable[[VEPM, GraphBatch], Any]) -> Any:
        """Call a function with the one graph; None if there are several."""
        source = self.examples[0].source
        if not isinstance(source, GraphBatch):
            return None
        self.model.train()
        return self._graphs.run("hold", lambda: function(self.model, source))

    def step(
        self,
        name: str,
        loss: Loss,
        batch: OwnBatch,
        optimizers: Sequence[torch.optim.Optimizer],
        *held: Any,
    ) -> Terms:
        """Step down a loss, in all processes together."""

        def of_batch(model: VEPM, *held: Any) -> Terms:
            return loss(model, *batch, *held)

        if self.parallel is not None:
            return self.parallel.descend(optimizers, of_batch, *held).detached()

        def work(*held: Any) -> Terms:
            terms = of_batch(self.model, *held)
            descend(terms.loss, *optimizers)
            return terms.detached()

        return self._graphs.run(name, work, *held)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        return self.group.sum(values)

    def weight_sums(self) -> Tensor:
        """Sum of all weights [1]."""
        return torch.stack([weight.detach().sum() for weight in self.model.parameters()]).sum()[
            None
        ]

    def watch(self) -> Callable[[], list[Row]]:
        """Accuracy and loss of each role, computed by the first process for all."""
        # Rounding may differ between processes, and all must choose the same epoch.
        return lambda: self.group.from_first(lambda: [self._watched()])

    def _watched(self) -> Row:
        row: Row = {}
        examples = self.examples[0]
        logits, y = self._scores(self.model, examples.source), examples.source.y
        for role, rows in examples.watched.items():
            rows = rows.to(y.device)
            found, truth, weights = logits[rows], y[rows], examples.class_weights
            hits = (found.argmax(1) == truth).double()
            if weights is not None:
                hits = hits * weights[truth] / weights[truth].double().mean()
            row[f"{role}_accuracy"] = float(hits.mean())
            row[f"{role}_loss"] = float(torch.nn.functional.cross_entropy(found, truth, weights))
        return row

    def keep(self, runs: Sequence[int]) -> None:
        """Remember the present weights."""
        if runs:
            self.best_weights = copy.deepcopy(self.model.state_dict())

    def restore(self) -> None:
        """Go back to the weights that were remembered, if any."""
        if self.best_weights is not None:
            self.model.load_state_dict(self.best_weights)
        self.model.eval()

    def close(self) -> None:
        """Let go of the other processes."""
        if self.parallel is not None:
            self.parallel.close()
