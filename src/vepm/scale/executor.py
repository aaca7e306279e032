"""How steps are carried out: an executor holds weights, and computes and minimises losses."""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from vepm.nn import VEPM
from vepm.objective import Counts, Terms
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.cuda_graphs import CUDAGraphs, worth_capturing
from vepm.scale.ddp import ProcessGroup
from vepm.scale.large import Clusters, LargeGraph
from vepm.scale.norms import SyncNorm, replace_norms

Source = GraphBatch | GraphStore | LargeGraph
"""What a model is applied to: a graph at once, many graphs, or a graph in chunks."""
Loss = Callable[..., Terms]
"""Called with a model, a batch, the labelled rows and possibly tensors that are held."""
Row = dict[str, Any]
T = TypeVar("T")


class Run(NamedTuple):
    """What differs between runs on one dataset with the same settings."""

    train_on: Tensor  # indices of labelled nodes or graphs to learn from; empty to pretrain only
    validate_on: Tensor  # of those that choose the epoch; empty to keep the last
    watch: Tensor | None = None  # of those whose accuracy is recorded, with no influence
    seed: int = 0
    class_weights: Tensor | None = None
    """Weight of the labels of each class, all above 0, of a run trained alone; None for ones."""

    @property
    def watched(self) -> dict[str, Tensor]:
        """Indices of the nodes or graphs whose accuracy is recorded, by role."""
        roles = {"val": self.validate_on, "test": self.watch}
        return {role: rows for role, rows in roles.items() if rows is not None and rows.numel()}


class LabelledBatch(NamedTuple):
    """A batch of one run, or of many runs that share it."""

    batch: GraphBatch
    rows: Tensor
    """Indices of the labelled nodes or graphs [n], or one row per run [R, n]."""
    size: None = None

    @property
    def labels(self) -> list[int]:
        """Number of labels of each run."""
        return [own.numel() for own in torch.atleast_2d(self.rows)]

    def laid_out(self) -> tuple[Tensor, Callable[[Tensor], tuple[GraphBatch, Tensor]]]:
        """What differs between runs, and a function from one run's part to its batch and rows."""
        return self.rows, lambda rows: (self.batch, rows)


class Executor(ABC):
    """What the executors of one run and of many have in common."""

    model: VEPM
    models: Sequence[VEPM]  # of each run
    runs: Sequence[Run]
    source: Source
    device: torch.device
    group = ProcessGroup()
    graphs: CUDAGraphs | None = None  # None where steps are not captured
    whole: LabelledBatch | None = None
    """The one graph of all steps; None if steps have batches of their own."""

    def begin(self, phase: str, epochs: int) -> None:
        """Prepare for a phase of at most this many epochs."""
        if self.graphs is not None:
            self.graphs.forget()

    def run(self, name: Hashable, function: Callable[..., T], *inputs: Any) -> T:
        """Call a function, perhaps as a CUDA graph; functions of one name must do the same."""
        if self.graphs is None:
            return function(*inputs)
        return self.graphs.run(name, function, *inputs)

    def batches(self, phase: str, epoch: int) -> tuple[int, Iterable[Any]]:
        """Number of steps in an epoch and this process's share of each; seeds random numbers."""
        torch.manual_seed(seed_of(*(run.seed for run in self.runs), phase, epoch))
        self.model.train()
        return (1, [self.whole]) if self.whole is not None else self.drawn_batches(phase, epoch)

    def hold(self, function: Callable[..., Any], cycle: int) -> Any:
        """Call a function with the one graph of all steps; None if there are several."""
        if self.whole is None:
            return None
        torch.manual_seed(seed_of(*(run.seed for run in self.runs), "hold", cycle))
        self.model.train()
        return self.run("hold", lambda batch: self.call(function, batch), self.whole)

    def step(
        self, name: str, loss: Loss, batch: Any, optimizers: Sequence[Optimizer], *held: Any
    ) -> Terms:
        """Minimise a loss by one step, in all processes together; terms have one value per run."""

        def work(batch: Any, *held: Any) -> Terms:
            terms = self.call(loss, batch, *held)
            descend(terms.loss.sum(), optimizers, self.group)
            return tree_map_only(Tensor, Tensor.detach, terms)

        return self.run((name, batch.size), work, batch, *held)

    @abstractmethod
    def drawn_batches(self, phase: str, epoch: int) -> tuple[int, Iterable[Any]]:
        """Number of steps of an epoch, and their batches, where there are several."""

    @abstractmethod
    def call(self, function: Callable[..., Any], batch: Any, *held: Any) -> Any:
        """Call a function with each run's model, batch, labelled rows and held tensors."""


class OneRun(Executor):
    """Calls one model directly, perhaps in several processes, by clusters or as CUDA graphs.

    ``scores`` computes class scores of every node or graph; ``capture`` is whether steps on one
    graph may be captured.
    """

    def __init__(
        self,
        model: VEPM,
        source: Source,
        run: Run,
        *,
        scores: Callable[[VEPM, Source], Tensor],
        batch_size: int = 0,
        group: ProcessGroup | None = None,
        capture: bool = True,
    ) -> None:
        self.group, self.device = group or ProcessGroup(), model.activation.device
        if run.class_weights is not None:
            run = run._replace(class_weights=run.class_weights.to(self.device))
        self.model, self.models, self.runs = model, [model], [run]
        self.source, self.batch_size = source, batch_size
        self.scores, self.best_weights = scores, dict[str, Tensor]()
        self.clusters: Clusters | None = None
        if not self.group.alone:
            replace_norms(model, lambda norm: SyncNorm(norm, self.group))
        elif self.device.type == "cuda" and isinstance(source, GraphBatch) and capture:
            # Steps on one graph have the same shapes; batches of graphs have many.
            self.graphs = CUDAGraphs(on=worth_capturing(source.edges.edge_index))
        if isinstance(source, GraphBatch):
            self.whole = LabelledBatch(source, run.train_on.to(self.device))
        elif isinstance(source, LargeGraph):
            sizes = model.activation.numel(), batch_size
            self.clusters = Clusters(source, run.train_on, *sizes, group=self.group, seed=run.seed)

    def parameters(self, part: str) -> Sequence[Tensor]:
        """Parameters of a part: ``encoder``, ``predictor``, or ``undecayed`` ones of the latter."""
        return list(getattr(self.model, f"{part}_parameters")())

    def drawn_batches(self, phase: str, epoch: int) -> tuple[int, Iterable[LabelledBatch]]:
        """Number of steps of an epoch, and their batches."""
        if self.clusters is not None:
            return self.clusters.steps, (LabelledBatch(*b) for b in self.clusters.epoch())
        store = self.source
        assert isinstance(store, GraphStore)
        parts = shuffled(store, self.runs[0], phase, self.batch_size)
        self.group.diverge()
        shares = (share_of(store, part, self.group) for part in parts)
        return len(parts), (
            LabelledBatch(own, torch.arange(own.num_graphs, device=self.device)) for own in shares
        )

    def call(self, function: Callable[..., Any], batch: LabelledBatch, *held: Any) -> Any:
        """Call a function with the model, a batch, its labelled rows and held tensors."""
        return function(self.model, batch.batch, batch.rows, *held)

    def weight_sums(self) -> Tensor:
        """Sum of all weights and running statistics [1]; finite if they are."""
        tensors = [t for t in self.model.state_dict().values() if t.is_floating_point()]
        return torch.stack([tensor.sum() for tensor in tensors]).sum()[None]

    def watch(self) -> dict[str, Tensor]:
        """Accuracy and loss of each role [1]; zero in all processes but the first."""
        run, y = self.runs[0], self.source.y
        if not self.group.leads:
            # Rounding may differ between processes, and all must choose the same epoch.
            names = [f"{role}_{name}" for role in run.watched for name in ("accuracy", "loss")]
            return dict.fromkeys(names, torch.zeros(1, device=self.device).double())
        found, logits = dict[str, Tensor](), self.scores(self.model, self.source)
        weights = None if run.class_weights is None else run.class_weights.to(y.device)
        for role, rows in run.watched.items():
            own, truth = logits[rows.to(y.device)], y[rows.to(y.device)]
            hits = (own.argmax(1) == truth).double()
            if weights is not None:
                hits = hits * weights[truth] / weights[truth].double().mean()
            found[f"{role}_accuracy"] = hits.mean()
            found[f"{role}_loss"] = torch.nn.functional.cross_entropy(own, truth, weights).double()
        return {name: value.to(self.device) for name, value in found.items()}

    def keep(self, runs: Sequence[int]) -> None:
        """Remember the current weights if the run is among those given."""
        if runs:
            self.best_weights = copy.deepcopy(self.model.state_dict())

    def restore(self) -> None:
        """Restore the remembered weights, if any."""
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)
        self.model.eval()


def capturable_adam(
    parameters: Sequence[Tensor], weight_decay: float = 0.0, undecayed: Sequence[Tensor] = ()
) -> torch.optim.Adam:
    """Adam whose step can be captured as a CUDA graph if its parameters are on a GPU."""
    gpu = parameters[0].is_cuda
    rate = parameters[0].new_tensor(0.0) if gpu else 0.0
    free = {id(parameter) for parameter in undecayed}
    groups: list[dict[str, Any]] = [{"params": [p for p in parameters if id(p) not in free]}]
    if undecayed:
        groups.append({"params": list(undecayed), "weight_decay": 0.0})
    return torch.optim.Adam(groups, lr=rate, weight_decay=weight_decay, capturable=gpu)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of an optimizer."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            # In place: a captured step reads it from there.
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def descend(loss: Tensor, optimizers: Sequence[Optimizer], group: ProcessGroup) -> None:
    """Minimise a loss, summed over all processes, by one step of the optimizers."""
    parameters = [p for o in optimizers for g in o.param_groups for p in g["params"]]
    # Gradients of the other parameters are not computed at all.
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    if not group.alone:
        # In one message; a parameter without a gradient has none in any process.
        moved = [p for p in parameters if p.grad is not None]
        joined = group.sum(torch.cat([p.grad.flatten() for p in moved]))
        for parameter, summed in zip(moved, joined.split([p.numel() for p in moved]), strict=True):
            parameter.grad = summed.view_as(parameter)
    for optimizer in optimizers:
        optimizer.step()


def shuffled(
    store: GraphStore, run: Run, phase: str, size: int, generator: torch.Generator | None = None
) -> tuple[Tensor, ...]:
    """Indices of the graphs that a run reads in an epoch, shuffled, in batches of a size."""
    chosen = torch.arange(len(store)) if phase == "pretrain" else run.train_on
    order = chosen[torch.randperm(chosen.numel(), generator=generator)]
    return order.split(size or max(order.numel(), 1))


def share_of(store: GraphStore, graphs: Tensor, group: ProcessGroup) -> GraphBatch:
    """The part of one process in a batch of graphs, given by their indices."""
    nodes, count = int(store.sizes[0, graphs].sum()), graphs.numel()
    own = store.select(graphs.tensor_split(group.size)[group.rank])
    return replace(own, counts=Counts(nodes, count, count))


def seed_of(*purpose: str | int) -> int:
    """A seed for a purpose, unrelated to the seeds of all others."""
    text = "/".join(map(str, purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
