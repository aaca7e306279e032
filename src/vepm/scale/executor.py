"""How the steps of a single run are carried out.

The training loop deals with runs, phases and losses; an executor holds the weights, and computes
and minimises a loss. :class:`OneRun` calls the model directly;
:class:`vepm.scale.many.ManyRuns`, with the same methods, calls many models at once.
"""

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from vepm.nn import VEPM
from vepm.objective import Terms
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.clusters import Clusters
from vepm.scale.cuda_graphs import CUDAGraphs, worth_capturing
from vepm.scale.ddp import ProcessGroup, SyncNorm, replace_norms
from vepm.scale.large import LargeGraph

Source = GraphBatch | GraphStore | LargeGraph
"""What a model is applied to: a graph at once, many graphs, or a graph in chunks."""
Loss = Callable[..., Terms]
"""Called with a model, a batch, the labelled rows and perhaps tensors that are held."""
Row = dict[str, Any]


class Run(NamedTuple):
    """What distinguishes the runs of one dataset and one set of settings."""

    train_on: Tensor
    """Indices of the labelled nodes or graphs to learn from; empty to pretrain only."""
    validate_on: Tensor
    """Indices of those that choose the epoch; empty to keep the last."""
    watch: Tensor | None = None
    """Indices of those whose accuracy is recorded; they have no influence."""
    seed: int = 0
    class_weights: Tensor | None = None
    """Weight of the labels of each class, all above 0, of a run trained alone; None for ones."""

    @property
    def watched(self) -> dict[str, Tensor]:
        """The roles that accuracies are recorded of, and their indices."""
        roles = {"val": self.validate_on, "test": self.watch}
        return {role: rows for role, rows in roles.items() if rows is not None and rows.numel()}


class OwnBatch(NamedTuple):
    """The batch of a single run."""

    batch: GraphBatch
    rows: Tensor  # indices of the labelled nodes or graphs

    @property
    def labels(self) -> list[int]:
        """Number of labels."""
        return [self.rows.numel()]


class OneRun:
    """Calls one model directly, perhaps in several processes, by clusters or as CUDA graphs.

    ``scores`` computes class scores of every node or graph; ``capture`` is whether steps on one
    graph may be captured; a large graph has clusters.
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
        clusters: Clusters | None = None,
    ) -> None:
        self.model, self.source, self.clusters = model, source, clusters
        self.runs, self.seeds = [run], [run.seed]
        self.batch_size, self.group, self._scores = batch_size, group or ProcessGroup(), scores
        self.device = model.activation.device
        self.best_weights: dict[str, Tensor] | None = None
        if not self.group.alone:
            replace_norms(model, lambda norm: SyncNorm(norm, self.group))
        # Steps on one graph are alike; batches of graphs have many sizes.
        alike = isinstance(source, GraphBatch) and worth_capturing(source.edges.edge_index)
        self._graphs = CUDAGraphs(on=capture and alike and self.group.alone)

    def parameters(self, part: str) -> Sequence[Tensor]:
        """Parameters of a part: ``encoder``, ``predictor``, or ``undecayed`` ones of the latter."""
        return list(getattr(self.model, f"{part}_parameters")())

    def begin(self, phase: str, epochs: int) -> None:
        """Prepare for a phase of at most so many epochs."""
        self._graphs.forget()

    def batches(self, phase: str, epoch: int) -> tuple[int, Iterator[OwnBatch]]:
        """Number of steps of an epoch, and this process's share of each; seeds what is drawn."""
        torch.manual_seed(seed_of(*self.seeds, phase, epoch))
        self.model.train()
        source, train = self.source, self.runs[0].train_on
        if isinstance(source, GraphBatch):
            return 1, iter([OwnBatch(source, train.to(source.x.device))])
        if self.clusters is not None:
            return self.clusters.steps, (OwnBatch(*b) for b in self.clusters.epoch())
        assert isinstance(source, GraphStore)
        chosen = torch.arange(len(source)) if phase == "pretrain" else train
        order = chosen[torch.randperm(chosen.numel())]
        parts = order.split(self.batch_size or max(order.numel(), 1))
        self.group.diverge()
        shares = (source.share(part, self.group.rank, self.group.size) for part in parts)
        return len(parts), (
            OwnBatch(own, torch.arange(own.num_graphs, device=own.x.device)) for own in shares
        )

    def hold(self, function: Callable[[VEPM, GraphBatch], Any]) -> Any:
        """Call a function with the one graph of all steps; None if there are several."""
        source = self.source
        if not isinstance(source, GraphBatch):
            return None
        self.model.train()
        return self._graphs.run("hold", lambda: function(self.model, source))

    def step(
        self, name: str, loss: Loss, batch: Any, optimizers: Sequence[Optimizer], *held: Any
    ) -> Terms:
        """Step down a loss, in all processes together; the terms have one value for each run."""

        def work(*held: Any) -> Terms:
            terms = loss(self.model, *batch, *held)
            descend(terms.loss, optimizers, self.group)
            return terms.detached()

        return self._graphs.run(name, work, *held)

    def weight_sums(self) -> Tensor:
        """Sum of all weights and running statistics [1]; finite if they are."""
        tensors = [t for t in self.model.state_dict().values() if t.is_floating_point()]
        return torch.stack([tensor.sum() for tensor in tensors]).sum()[None]

    def watch(self) -> Callable[[], list[Row]]:
        """Accuracy and loss of each role, computed by the first process for all."""
        # Rounding may differ between processes, and all must choose the same epoch.
        return lambda: self.group.from_first(lambda: [self._watched(self.runs[0])])

    def _watched(self, run: Run) -> Row:
        row: Row = {}
        logits, y = self._scores(self.model, self.source), self.source.y
        weights = None if run.class_weights is None else run.class_weights.to(y.device)
        for role, rows in run.watched.items():
            found, truth = logits[rows.to(y.device)], y[rows.to(y.device)]
            hits = (found.argmax(1) == truth).double()
            if weights is not None:
                hits = hits * weights[truth] / weights[truth].double().mean()
            row[f"{role}_accuracy"] = float(hits.mean())
            row[f"{role}_loss"] = float(torch.nn.functional.cross_entropy(found, truth, weights))
        return row

    def keep(self, runs: Sequence[int]) -> None:
        """Remember the present weights, if the run is among those given."""
        if runs:
            self.best_weights = copy.deepcopy(self.model.state_dict())

    def restore(self) -> None:
        """Go back to the weights that were remembered, if any."""
        if self.best_weights is not None:
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


def descend(
    loss: Tensor, optimizers: Sequence[Optimizer], group: ProcessGroup | None = None
) -> None:
    """Step down a loss, summed over all processes, with the parameters of the optimizers alone."""
    parameters = [p for o in optimizers for g in o.param_groups for p in g["params"]]
    # Gradients of the other parameters are not computed at all.
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    summed = (group or ProcessGroup()).sum_all(gradients)
    for parameter, gradient in zip(parameters, summed, strict=True):
        parameter.grad = gradient
    for optimizer in optimizers:
        optimizer.step()


def seed_of(*purpose: str | int) -> int:
    """A seed for a purpose, unrelated to that of any other."""
    text = "/".join(map(str, purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
