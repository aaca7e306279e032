"""Many runs at once: seeds and folds trained as one program that reads the graph once for all."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from vepm.nn import VEPM
from vepm.objective import Terms
from vepm.scale.batches import GraphBatch, GraphStore, pieces
from vepm.scale.cuda_graphs import CUDAGraphs, worth_capturing
from vepm.scale.executor import Executor, LabelledBatch, Run, seed_of, shuffled
from vepm.scale.many.edges import RunEdges, SharedFeatures
from vepm.scale.many.padding import Plan, plan, size_of
from vepm.scale.norms import PaddedNorm, replace_norms


class ManyRuns(Executor):
    """Calls the models of many runs at once with ``vmap``.

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
        shared = [
            dataclasses.replace(b, x=SharedFeatures.of(b.x), edges=RunEdges.shared(b.edges))
            for b in pieces(source)
        ]
        capture = all(worth_capturing(batch.edges.edge_index) for batch in shared)
        self.graphs, self.runs, self.device = CUDAGraphs(capture), runs, models[0].activation.device
        self.models, self.batch_size, self.source = models, batch_size, source
        self._parameters, buffers = stack_module_state(list(models))
        self._weights = {**self._parameters, **buffers}
        """All that training changes, by name [R, ...]."""
        self._kept: dict[str, Tensor] = {}
        self._kept_runs: set[int] = set()
        self.model = copy.deepcopy(models[0])
        """Called with the weights of every run; its own weights are not used."""
        replace_norms(self.model, PaddedNorm)
        self._norms = [module for module in self.model.modules() if isinstance(module, PaddedNorm)]
        self._caller = _Caller(self.model)
        no_rows = torch.empty(len(runs), 0, dtype=torch.long, device=self.device)
        self._pieces = [LabelledBatch(batch, no_rows) for batch in shared]
        if isinstance(source, GraphBatch):
            rows = torch.stack([run.train_on for run in runs]).to(self.device)
            self.whole = LabelledBatch(shared[0], rows)
        # Unknown labels have no role.
        self._y = source.y.clamp_min(0)
        self._roles = {}
        for role in ("val", "test"):
            masks = torch.zeros(len(runs), self._y.numel(), dtype=torch.bool)
            for mask, run in zip(masks, runs, strict=True):
                mask[run.watched.get(role, [])] = True
            self._roles[role] = masks.to(self.device)

    def parameters(self, part: str) -> Sequence[Tensor]:
        """Stacked parameters of a part of all models."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        own = getattr(self.model, f"{part}_parameters")()
        return [self._parameters[names[id(parameter)]] for parameter in own]

    def begin(self, phase: str, epochs: int) -> None:
        """Plan the batches of a phase of at most this many epochs."""
        super().begin(phase, epochs)
        if isinstance(self.source, GraphStore):
            self._batches = GraphBatches(self.source, self.runs, phase, epochs, self.batch_size)

    def drawn_batches(self, phase: str, epoch: int) -> tuple[int, Sequence[Plan]]:
        """Number of steps of an epoch, and a batch of every run for each."""
        batches = self._batches.epoch(epoch)
        return len(batches), batches

    def call(self, function: Callable[..., Any], batch: LabelledBatch | Plan, *held: Any) -> Any:
        """Call a function with every run's model, batch, labelled rows and held tensors."""
        parts, local = batch.laid_out()

        def one(weights: dict[str, Tensor], parts: Any, held: tuple[Any, ...]) -> Any:
            graphs, rows = local(parts)
            for norm in self._norms:
                norm.mask = graphs.node_mask
            named = {f"model.{name}": tensor for name, tensor in weights.items()}
            found = functional_call(self._caller, named, (function, graphs, rows, *held))
            for norm in self._norms:
                norm.mask = None
            if isinstance(found, Terms):
                return {name: value for name, value in found._asdict().items() if value is not None}
            return found

        found = vmap(one, randomness="different")(self._weights, parts, held)
        return Terms(**found) if isinstance(found, dict) else found

    def weight_sums(self) -> Tensor:
        """Sum of the weights and running statistics of each run [R]; finite if they are."""
        tensors = [t.detach() for t in self._weights.values() if t.is_floating_point()]
        return torch.stack([tensor.reshape(len(tensor), -1).sum(1) for tensor in tensors]).sum(0)

    def watch(self) -> dict[str, Tensor]:
        """Accuracy and loss of each role [R]; to be ignored for runs without the role."""
        self.model.eval()
        return self.run("watch", self._metrics)

    @torch.no_grad()
    def _metrics(self) -> dict[str, Tensor]:
        def scores(model: VEPM, b: GraphBatch, _: Tensor) -> Tensor:
            return model(b.x, b.edges, b.batch, b.num_graphs).logits

        logits = torch.cat([self.call(scores, piece) for piece in self._pieces], dim=1)
        hits = logits.argmax(2) == self._y
        y = self._y.expand(hits.shape)
        losses = nn.functional.cross_entropy(logits.transpose(1, 2), y, reduction="none")
        found = {}
        for role, mask in self._roles.items():
            count = mask.sum(1).clamp_min(1)
            found[f"{role}_accuracy"] = (hits & mask).sum(1).double() / count
            found[f"{role}_loss"] = losses.double().where(mask, 0).sum(1) / count
        return found

    def keep(self, runs: Sequence[int]) -> None:
        """Remember the current weights of some runs."""
        if runs:
            self._kept = self._kept or {n: t.detach().clone() for n, t in self._weights.items()}
            copy_runs(self._weights, self._kept, runs)
            self._kept_runs |= set(runs)

    def restore(self) -> None:
        """Restore the weights that were kept, and copy all weights to the models."""
        copy_runs(self._kept, self._weights, sorted(self._kept_runs))
        self._kept, self._kept_runs = {}, set()
        for run, model in enumerate(self.models):
            model.load_state_dict({name: tensor[run] for name, tensor in self._weights.items()})
            model.eval()


@torch.no_grad()
def copy_runs(source: dict[str, Tensor], target: dict[str, Tensor], runs: Sequence[int]) -> None:
    """Copy the rows of some runs between tensors of the same names, in place."""
    for name, tensor in source.items():
        index = torch.tensor(runs, dtype=torch.long, device=tensor.device)
        target[name].index_copy_(0, index, tensor[index])


class _Caller(nn.Module):
    """Passes a model to any function, so that functional_call can replace its weights."""

    def __init__(self, model: VEPM) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.model, *arguments)


class GraphBatches:
    """The batches of a phase, in the order a run of its own would take them.

    All last batches of an epoch are padded to one size, and so are all others, so that a captured
    step can be replayed on them.
    """

    def __init__(
        self, store: GraphStore, runs: Sequence[Run], phase: str, epochs: int, batch_size: int
    ) -> None:
        self.store, self.runs, self.phase, self.batch_size = store, runs, phase, batch_size
        self._sizes = {True: (0, 0), False: (0, 0)}
        for epoch in range(epochs):
            for is_last, parts in self._parts(epoch):
                both = zip(self._sizes[is_last], size_of(store, parts), strict=True)
                nodes, edges = map(max, both)
                self._sizes[is_last] = nodes, edges

    def epoch(self, epoch: int) -> list[Plan]:
        """The batches of an epoch."""
        batches = self._parts(epoch)
        return [plan(self.store, parts, self._sizes[is_last]) for is_last, parts in batches]

    def _parts(self, epoch: int) -> Iterator[tuple[bool, Sequence[Tensor]]]:
        """For each batch, whether it is the last, and each run's graphs."""
        orders = []
        for run in self.runs:
            generator = torch.Generator().manual_seed(seed_of(run.seed, self.phase, epoch))
            orders.append(shuffled(self.store, run, self.phase, self.batch_size, generator))
        last = len(orders[0]) - 1
        for i, parts in enumerate(zip(*orders, strict=True)):
            yield i == last, parts
