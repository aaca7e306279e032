"""Many runs at once: seeds and folds trained as one program that reads the graph once for all."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim import Optimizer

from vepm.nn import VEPM
from vepm.objective import Terms
from vepm.scale.batches import GraphBatch, pieces
from vepm.scale.cuda_graphs import CUDAGraphs, worth_capturing
from vepm.scale.ddp import ProcessGroup, replace_norms
from vepm.scale.executor import Examples, Loss, Row, descend, seed_of
from vepm.scale.large import LargeGraph
from vepm.scale.many.edges import ManyEdges, SharedFeatures
from vepm.scale.many.padding import GraphBatches, PaddedNorm, PaddingMask

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, eq=False)
class ManyBatch:
    """A batch of every run."""

    parts: Any
    """What differs between runs, stacked [R, ...]: graphs, or nodes to learn from."""
    labels: list[int]
    """Number of labels of each run."""
    graph: GraphBatch | None = None
    """The graph of all runs, if they share one."""

    def local(self, parts: Any) -> Callable[[Any], tuple[GraphBatch, Tensor]]:
        """What finds one run's graphs and labelled rows in its slice of such parts."""
        if (graph := self.graph) is not None:
            return lambda rows: (graph, rows)
        union = parts.union()
        return lambda own: own.local(union)


class ManyRuns:
    """Calls the models of many runs at once with ``vmap``; has the methods of :class:`OneRun`.

    A run that has finished a phase early waits for the others: their steps change its weights
    too, and it gets back those that were kept when the phase ends.
    """

    def __init__(
        self,
        models: Sequence[VEPM],
        examples: Sequence[Examples],
        seeds: Sequence[int],
        batch_size: int,
    ) -> None:
        self.models, self.examples, self.seeds = models, examples, seeds
        self.batch_size, self.device = batch_size, models[0].activation.device
        self.group = ProcessGroup()
        self._parameters, buffers = stack_module_state(list(models))
        self._weights = {**self._parameters, **buffers}
        """All that training changes, by name [R, ...]."""
        self._kept: dict[str, Tensor] = {}
        self._kept_of: set[int] = set()
        self._padding = PaddingMask()
        self.model = copy.deepcopy(models[0])
        """Called with the weights of every run; its own weights are not used."""
        replace_norms(self.model, lambda norm: PaddedNorm(norm, self._padding))
        self._caller = _Caller(self.model)
        source = examples[0].source
        assert not isinstance(source, LargeGraph)
        self._pieces = [_shared(piece) for piece in pieces(source)]
        # Unknown labels have no role.
        self._y = source.y.clamp_min(0)
        self._roles = {
            role: _masks([getattr(own, role) for own in examples], source.y)
            for role in ("val", "test")
        }
        self._batches: GraphBatches | None = None
        self._graph: ManyBatch | None = None
        if isinstance(source, GraphBatch):
            rows = torch.stack([own.train for own in examples]).to(self.device)
            self._graph = ManyBatch(rows, [rows.size(1)] * len(rows), self._pieces[0])
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
        if self._graph is None:
            self._batches = GraphBatches(self.examples, self.seeds, phase, epochs, self.batch_size)

    def batches(self, phase: str, epoch: int) -> tuple[int, Iterator[ManyBatch]]:
        """Number of steps of an epoch, and a batch of every run for each; seeds what is drawn."""
        self.model.train()
        torch.manual_seed(seed_of(*self.seeds, phase, epoch))
        if self._graph is not None:
            return 1, iter([self._graph])
        assert self._batches is not None
        count, found = self._batches.epoch(epoch)
        return count, (ManyBatch(*batch) for batch in found)

    def hold(self, function: Callable[[VEPM, GraphBatch], Any]) -> Any:
        """Call a function with the one graph and every model; None if there are many graphs."""
        if self._graph is None:
            return None
        self.model.train()
        whole = self._pieces[0]
        return self._graphs.run("hold", lambda: self._each(lambda model: function(model, whole)))

    def step(
        self, name: str, loss: Loss, batch: Any, optimizers: Sequence[Optimizer], *held: Any
    ) -> Terms:
        """Step down the losses of all runs; the terms have one value for each."""

        def work(parts: Any, *held: Any) -> Terms:
            local = batch.local(parts)

            def one(model: VEPM, own: Any, *held: Any) -> dict[str, Tensor]:
                graphs, rows = local(own)
                self._padding.nodes = getattr(graphs, "node_mask", None)
                terms = loss(model, graphs, rows, *held)._asdict()
                return {name: value for name, value in terms.items() if value is not None}

            try:
                terms = Terms(**self._each(one, parts, *held))
            finally:
                self._padding.nodes = None
            descend(terms.loss.sum(), optimizers)
            return terms.detached()

        return self._graphs.run(name, work, batch.parts, *held)

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
            for own, row in zip(self.examples, values, strict=True)
        ]

    @torch.no_grad()
    def keep(self, runs: Sequence[int]) -> None:
        """Remember the present weights of some runs."""
        if runs:
            self._kept = self._kept or {name: t.clone() for name, t in self._weights.items()}
            _copy_runs(self._weights, self._kept, runs)
            self._kept_of |= set(runs)

    @torch.no_grad()
    def restore(self) -> None:
        """Go back to the weights that were kept, and copy all weights to the models."""
        _copy_runs(self._kept, self._weights, list(self._kept_of))
        self._kept, self._kept_of = {}, set()
        for run, model in enumerate(self.models):
            model.load_state_dict({name: tensor[run] for name, tensor in self._weights.items()})
            model.eval()


def _copy_runs(source: dict[str, Tensor], target: dict[str, Tensor], runs: Sequence[int]) -> None:
    for name, tensor in source.items():
        target[name][list(runs)] = tensor[list(runs)]


class _Caller(nn.Module):
    """Passes a model to any function, so that functional_call can replace its weights."""

    def __init__(self, model: VEPM) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(self.model, *arguments)


def _shared(batch: GraphBatch) -> GraphBatch:
    """A batch that all runs read."""
    edges = ManyEdges.of(batch.edges)
    return dataclasses.replace(batch, x=SharedFeatures.of(batch.x), edges=edges)


def _masks(rows: Sequence[Tensor | None], y: Tensor) -> Tensor:
    masks = torch.zeros(len(rows), y.numel(), dtype=torch.bool)
    for mask, own in zip(masks, rows, strict=True):
        if own is not None:
            mask[own] = True
    return masks.to(y.device)
