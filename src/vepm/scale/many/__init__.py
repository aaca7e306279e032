"""Many runs at once: seeds and folds trained as one program that reads the graph once for all."""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim import Optimizer

from vepm.nn import VEPM
from vepm.objective import Terms
from vepm.scale.batches import GraphBatch, GraphStore, pieces
from vepm.scale.cuda_graphs import CUDAGraphs, worth_capturing
from vepm.scale.ddp import ProcessGroup, replace_norms
from vepm.scale.executor import Loss, Row, Run, descend, seed_of
from vepm.scale.many.edges import SharedEdges, SharedFeatures
from vepm.scale.many.padding import GraphBatches, PaddedBatch, PaddedNorm, PaddingMask, Plan

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, eq=False)
class SharedBatch:
    """One graph for all runs, of whose nodes each learns from its own."""

    batch: GraphBatch
    parts: Tensor  # training nodes of each run [R, n]
    size: None = None

    @property
    def labels(self) -> list[int]:
        """Number of labels of each run."""
        return [self.parts.size(1)] * self.parts.size(0)

    def local(self, parts: Tensor) -> tuple[GraphBatch, Tensor]:
        """The graph, and one run's training nodes."""
        return self.batch, parts


class ManyRuns:
    """Calls the models of many runs at once with ``vmap``; has the methods of :class:`OneRun`.

    A run that has finished a phase early waits for the others: their steps change its weights
    too, and it gets back those that were kept when the phase ends.
    """

    def __init__(
        self,
        models: Sequence[VEPM],
        source: GraphBatch | GraphStore,
        runs: Sequence[Run],
        batch_size: int,
    ) -> None:
        self.models, self.runs, self.seeds = models, runs, [run.seed for run in runs]
        self.batch_size, self.device = batch_size, models[0].activation.device
        self.group = ProcessGroup()
        self._parameters, buffers = stack_module_state(list(models))
        self._weights = {**self._parameters, **buffers}
        """All that training changes, by name [R, ...]."""
        self._kept: dict[str, Tensor] = {}
        self._kept_of = torch.zeros(len(models), dtype=torch.bool)
        self._padding = PaddingMask()
        self.model = copy.deepcopy(models[0])
        """Called with the weights of every run; its own weights are not used."""
        replace_norms(self.model, lambda norm: PaddedNorm(norm, self._padding))
        self._caller = _Caller(self.model)
        self._source = source
        self._pieces = [_shared(piece) for piece in pieces(source)]
        # Unknown labels have no role.
        self._y = source.y.clamp_min(0)
        self._roles = {
            role: _masks([run.watched.get(role) for run in runs], source.y)
            for role in ("val", "test")
        }
        self._batches: GraphBatches | None = None
        self._graph: SharedBatch | None = None
        if isinstance(source, GraphBatch):
            rows = torch.stack([run.train_on for run in runs]).to(self.device)
            self._graph = SharedBatch(self._pieces[0], rows)
        edges = (piece.edges.edge_index for piece in self._pieces)
        self._graphs = CUDAGraphs(on=all(map(worth_capturing, edges)))

    def parameters(self, part: str) -> Sequence[Tensor]:
        """Stacked parameters of a part of all models."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        own = getattr(self.model, f"{part}_parameters")()
        return [self._parameters[names[id(parameter)]] for parameter in own]

    def begin(self, phase: str, epochs: int) -> None:
        """Plan the batches of a phase of at most so many epochs."""
        self._graphs.forget()
        if isinstance(self._source, GraphStore):
            self._batches = GraphBatches(self._source, self.runs, phase, epochs, self.batch_size)

    def batches(self, phase: str, epoch: int) -> tuple[int, Sequence[SharedBatch | Plan]]:
        """Number of steps of an epoch, and a batch of every run for each; seeds what is drawn."""
        self.model.train()
        batches: Sequence[SharedBatch | Plan]
        if self._graph is not None:
            batches = [self._graph]
        else:
            assert self._batches is not None
            batches = self._batches.epoch(epoch)
        torch.manual_seed(seed_of(*self.seeds, phase, epoch))
        return len(batches), batches

    def hold(self, function: Callable[[VEPM, GraphBatch], Any]) -> Any:
        """Call a function with the one graph and every model; None if there are many graphs."""
        if self._graph is None:
            return None
        self.model.train()

        def work(batch: SharedBatch) -> Any:
            return self._on(batch, lambda model, graphs, _: function(model, graphs))

        return self._graphs.run("hold", work, self._graph)

    def step(
        self, name: str, loss: Loss, batch: Any, optimizers: Sequence[Optimizer], *held: Any
    ) -> Terms:
        """Step down the losses of all runs; the terms have one value for each."""

        def given(*arguments: Any) -> dict[str, Tensor]:
            terms = loss(*arguments)._asdict()
            return {name: value for name, value in terms.items() if value is not None}

        def work(planned: SharedBatch | Plan, *held: Any) -> Terms:
            batch = planned.laid_out() if isinstance(planned, Plan) else planned
            terms = Terms(**self._on(batch, given, *held))
            descend(terms.loss.sum(), optimizers)
            return terms.detached()

        return self._graphs.run((name, batch.size), work, batch, *held)

    def _on(self, batch: SharedBatch | PaddedBatch, function: Callable[..., T], *own: Any) -> T:
        """Call a function with every run's model, batch, rows and own tensors."""

        def one(model: VEPM, parts: Any, *own: Any) -> T:
            graphs, rows = batch.local(parts)
            self._padding.nodes = getattr(graphs, "node_mask", None)
            try:
                return function(model, graphs, rows, *own)
            finally:
                self._padding.nodes = None

        return self._each(one, batch.parts, *own)

    def _each(self, function: Callable[..., T], *stacked: Any) -> T:
        """Call a function with each model and its slice of tensors [R, ...]; stack the results."""

        def one(weights: dict[str, Tensor], own: Any) -> T:
            named = {f"model.{name}": tensor for name, tensor in weights.items()}
            found: T = functional_call(self._caller, named, (function, *own))
            return found

        return vmap(one, randomness="different")(self._weights, stacked)

    def weight_sums(self) -> Tensor:
        """Sum of the weights and running statistics of each run [R]; finite if they are."""
        tensors = [t.detach() for t in self._weights.values() if t.is_floating_point()]
        return torch.stack([tensor.reshape(len(tensor), -1).sum(1) for tensor in tensors]).sum(0)

    def watch(self) -> Callable[[], list[Row]]:
        """Start to compute accuracy and loss of each role and run; the result is a row per run."""
        self.model.eval()
        found = self._graphs.run("watch", self._metrics)
        return lambda: self._rows(found)

    @torch.no_grad()
    def _metrics(self) -> dict[str, Tensor]:
        """Values of every run by name [R]; those of absent roles mean nothing."""

        def scores_of(b: GraphBatch) -> Tensor:
            return self._each(lambda model: model(b.x, b.edges, b.batch, b.num_graphs).logits)

        logits = torch.cat([scores_of(piece) for piece in self._pieces], dim=1)
        hits = logits.argmax(2) == self._y
        y = self._y.expand(hits.shape)
        losses = nn.functional.cross_entropy(logits.transpose(1, 2), y, reduction="none")
        found = {}
        for role, mask in self._roles.items():
            count = mask.sum(1).clamp_min(1)
            found[f"{role}_accuracy"] = (hits & mask).sum(1).double() / count
            found[f"{role}_loss"] = losses.double().where(mask, 0).sum(1) / count
        return found

    def _rows(self, found: dict[str, Tensor]) -> list[Row]:
        values = torch.stack([value.double() for value in found.values()], dim=1).tolist()
        return [
            {k: v for k, v in zip(found, row, strict=True) if k.partition("_")[0] in own.watched}
            for own, row in zip(self.runs, values, strict=True)
        ]

    @torch.no_grad()
    def keep(self, runs: Sequence[int]) -> None:
        """Remember the present weights of some runs."""
        if runs:
            self._kept = self._kept or {name: t.clone() for name, t in self._weights.items()}
            chosen = torch.zeros_like(self._kept_of)
            chosen[list(runs)] = True
            self._copy(self._weights, self._kept, chosen)
            self._kept_of |= chosen

    @torch.no_grad()
    def restore(self) -> None:
        """Go back to the weights that were kept, and copy all weights to the models."""
        self._copy(self._kept, self._weights, self._kept_of)
        self._kept, self._kept_of = {}, torch.zeros_like(self._kept_of)
        for run, model in enumerate(self.models):
            model.load_state_dict({name: tensor[run] for name, tensor in self._weights.items()})
            model.eval()

    def _copy(self, source: dict[str, Tensor], target: dict[str, Tensor], runs: Tensor) -> None:
        chosen = runs.to(self.device)
        for name, tensor in source.items():
            mask = chosen.view(-1, *[1] * (tensor.dim() - 1))
            target[name].copy_(torch.where(mask, tensor, target[name]))


class _Caller(nn.Module):
    """Passes a model to any function, so that functional_call can replace its weights."""

    def __init__(self, model: VEPM) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(self.model, *arguments)


def _shared(batch: GraphBatch) -> GraphBatch:
    """A batch that all runs read."""
    edges = SharedEdges(batch.edges.edge_index, batch.edges.num_nodes, **batch.edges.attributes)
    return dataclasses.replace(batch, x=SharedFeatures.of(batch.x), edges=edges)


def _masks(rows: Sequence[Tensor | None], y: Tensor) -> Tensor:
    masks = torch.zeros(len(rows), y.numel(), dtype=torch.bool)
    for mask, own in zip(masks, rows, strict=True):
        if own is not None:
            mask[own] = True
    return masks.to(y.device)
