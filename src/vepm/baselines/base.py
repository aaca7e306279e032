"""What every baseline is, settings that can be called to make a run, and the one training loop."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, dataclass_transform

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.optim import Optimizer
from torch.optim.lr_scheduler import StepLR

from vepm.data import Dataset, require_labels
from vepm.data.canonical import is_sparse
from vepm.errors import InputError
from vepm.evaluation import Curve, RunResult, Split, choose_epoch
from vepm.schema import checked
from vepm.tasks import TASKS, TaskName
from vepm.training import GraphBatch, GraphStore, single_graph

COLUMNS = ("train_loss", "val_loss", "val_accuracy", "test_accuracy")
EVALUATION_BATCH = 512


class Labelled(NamedTuple):
    """A batch, which rows of its class scores count, and their labels."""

    graph: GraphBatch
    rows: Tensor | slice
    labels: Tensor


class Classifier(nn.Module):
    """A network from a batch of graphs to class scores of its nodes or of its graphs."""

    def losses(self, batch: Labelled) -> tuple[Tensor, Tensor | float]:
        """Cross-entropy of the labels in a training pass, and what is added to it."""
        return cross_entropy(self(batch.graph)[batch.rows], batch.labels), 0.0


Outcome = tuple[Curve, dict[str, Tensor]]
"""The curve, and the class scores of each held-out part at the epoch that validation chooses."""


class Problem(NamedTuple):
    """What to learn from, how, and what to be scored on."""

    training: Callable[[torch.Generator], Iterable[Labelled]]  # draws the mini-batches of one epoch
    graphs: list[GraphBatch]  # what is read after every epoch
    held_out: dict[str, tuple[Tensor, Tensor]]  # rows of their scores, and labels: "val", "test"
    patience: int | None = None  # epochs in which neither validation measure reached its best
    halve_every: int | None = None  # epochs after which the learning rate is halved, each time


def fit(
    model: Classifier, problem: Problem, optimizer: Optimizer, epochs: int, seed: int
) -> Outcome:
    """Train a model in place, in mini-batches drawn by the seed, and score it after every epoch."""
    generator = torch.Generator().manual_seed(seed)
    scheduler = StepLR(optimizer, problem.halve_every or epochs, gamma=0.5)
    curve: Curve = {name: [] for name in COLUMNS}
    best: dict[str, Tensor] = {}
    for _ in range(epochs):
        curve["train_loss"].append(_train_epoch(model, problem.training(generator), optimizer))
        scheduler.step()
        scores = _score(model, problem, curve)
        accuracy, loss = curve["val_accuracy"], curve["val_loss"]
        if not accuracy or choose_epoch(accuracy, loss) == len(accuracy) - 1:
            best = scores
        if problem.patience is not None and _stalled(accuracy, loss, problem.patience):
            break
    return curve, best


def _train_epoch(model: Classifier, batches: Iterable[Labelled], optimizer: Optimizer) -> float:
    model.train()
    # Summed on the device: reading it in every step would make the CPU wait for the GPU.
    total, count = torch.zeros((), dtype=torch.double), 0
    for batch in batches:
        loss, penalty = model.losses(batch)
        optimizer.zero_grad()
        (loss + penalty).backward()
        optimizer.step()
        size = batch.labels.numel()
        total = total.to(loss.device) + loss.detach().double() * size
        count += size
    return float(total) / count


@torch.no_grad()
def _score(model: Classifier, problem: Problem, curve: Curve) -> dict[str, Tensor]:
    """Class scores of the held-out parts; their accuracy goes to the curve."""
    model.eval()
    every = torch.cat([model(graph) for graph in problem.graphs])
    scores = {}
    for name, (rows, labels) in problem.held_out.items():
        logits = scores[name] = every[rows]
        curve[f"{name}_accuracy"].append(float((logits.argmax(1) == labels).double().mean()))
        if name == "val":
            curve["val_loss"].append(float(cross_entropy(logits, labels)))
    return scores


def _stalled(accuracy: list[float], loss: list[float], patience: int) -> bool:
    if len(accuracy) <= patience:
        return False
    recent, before = slice(-patience, None), slice(None, -patience)
    return max(accuracy[recent]) < max(accuracy[before]) and min(loss[recent]) > min(loss[before])


def scored(split: Split) -> dict[str, Tensor]:
    """Indices of the parts that are scored, by name; validation only where there is some."""
    return {"val": split.val, "test": split.test} if split.val.numel() else {"test": split.test}


def single_epoch_curve(predicted: Tensor, labels: Tensor, split: Split) -> Curve:
    """The curve of a method without epochs, from its predictions for every node or graph."""
    hit = (predicted == labels).double()
    found = {f"{name}_accuracy": [float(hit[rows].mean())] for name, rows in scored(split).items()}
    return {name: found.get(name, []) for name in COLUMNS}


def unit_rows(x: Tensor) -> Tensor:
    """Rows scaled to unit sum, of a table or of sparse features."""
    if not is_sparse(x):
        return normalize(x, p=1.0)
    totals = x.new_zeros(x.size(0)).to_dense().index_add(0, x.indices()[0], x.values().abs())
    return with_values(x, x.values() / totals.clamp_min(1e-12)[x.indices()[0]])


def with_values(x: Tensor, values: Tensor) -> Tensor:
    """Sparse features with other values in the same places."""
    return torch.sparse_coo_tensor(
        x.indices(), values, x.shape, check_invariants=False, is_coalesced=True
    )


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Baseline(ABC):
    """A method of comparison, called with data, split and seed; a frozen dataclass of settings.

    Example:
        >>> from vepm.baselines import baseline
        >>> from vepm.data import planted_graph
        >>> from vepm.evaluation import public_split
        >>> dataset = planted_graph(200, 2, seed=0)
        >>> result = baseline("gcn", epochs=50)(dataset, public_split(dataset), seed=0)
        >>> len(result.curve["test_accuracy"])
        50
    """

    task: ClassVar[TaskName]
    name: str

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    def check(self, dataset: Dataset) -> None:
        """Refuse a dataset of another task, or without labels."""
        if dataset.task != self.task:
            raise InputError(
                f"baseline '{self.name}' labels {self.task}s, and {dataset.name} has labelled "
                f"{dataset.task}s"
            )
        require_labels(dataset)

    def __call__(self, dataset: Dataset, split: Split, seed: int) -> RunResult:
        """One run; torch's global random state is left as it was."""
        self.check(dataset)
        start = perf_counter()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            curve, found = self.train(dataset, split, seed)
        seconds = perf_counter() - start
        measures = TASKS[self.task].measures(found, dataset.labels[split.test])
        known = (curve, seconds, self.settings(), measures)
        return RunResult.from_curve(self.name, dataset.name, split.name, seed, *known)

    @abstractmethod
    def train(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, Tensor]:
        """Learn from the training part; gives the curve and class probabilities of the test part.

        The probabilities are those at the epoch that validation chooses, or else the last.
        """

    def settings(self) -> dict[str, Any]:
        """Everything but the name, ready for JSON."""
        values = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        del values["name"]
        return values


class NeuralBaseline(Baseline):
    """A baseline trained by Adam, with weight decay where :meth:`decays` says so."""

    network: ClassVar[Callable[..., Classifier]]
    """A fresh network, from the widths of its input and output, and the baseline."""
    epochs: int = checked(200, low=1)
    learning_rate: float = checked(0.01, above=0)
    weight_decay: float = checked(5e-4, low=0)
    dropout: float = checked(0.5, low=0, below=1)
    device: str = "cpu"

    def train(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, Tensor]:
        """Train and score every epoch."""
        curve, scores = self.fit(dataset, split, seed)
        return curve, torch.softmax(scores["test"], dim=1)

    def fit(self, dataset: Dataset, split: Split, seed: int) -> Outcome:
        """Train a fresh network."""
        model = self.build(dataset.num_features, dataset.num_classes).to(self.device)
        named = list(model.named_parameters())
        decayed = [p for name, p in named if self.decays(name)]
        others = [p for name, p in named if not self.decays(name)]
        groups = {"params": decayed, "weight_decay": self.weight_decay}, {"params": others}
        optimizer = torch.optim.Adam(groups, lr=self.learning_rate)
        return fit(model, self.problem(dataset, split), optimizer, self.epochs, seed)

    @abstractmethod
    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """What to learn, how, and what to be scored on."""

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        return type(self).network(in_channels, out_channels, self)

    def decays(self, name: str) -> bool:
        """Whether weight decay is for the parameter of this name."""
        return True


class NodeBaseline(NeuralBaseline):
    """A network over one graph, trained in full batches.

    It stops when for ``patience`` epochs validation accuracy stayed below its best and the loss
    above its lowest. Features are scaled to unit sum for each node first if ``row_normalize``.
    """

    task = "node"
    patience: int | None = None
    row_normalize: bool = True

    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """Nodes of one graph, in full batches."""
        x, device = dataset.graphs[0].x, self.device
        # The features stay one tensor: PyG's layers take no other kind.
        x = (unit_rows(x) if self.row_normalize else x).to(device)
        graph = replace(single_graph(dataset.graphs[0], device), x=x)
        parts, y = {"train": split.train} | scored(split), dataset.labels
        known = {name: (rows.to(device), y[rows].to(device)) for name, rows in parts.items()}
        train = Labelled(graph, *known.pop("train"))
        return Problem(lambda _: [train], [graph], known, patience=self.patience)


class GraphBaseline(NeuralBaseline):
    """A network over many graphs, trained in mini-batches as GIN is; it never stops early.

    The learning rate is halved every ``halve_every`` epochs. Every layer is equally wide.
    """

    task = "graph"
    epochs: int = checked(350, low=1)
    weight_decay: float = checked(0.0, low=0)
    batch_size: int = checked(32, low=1)
    halve_every: int = checked(50, low=1)
    hidden_channels: int = checked(32, low=1)

    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """Graphs, in random mini-batches of about equal size."""
        graphs, count = GraphStore(dataset.graphs, self.device), split.train.numel()

        def labelled(ids: Tensor) -> Labelled:
            labels = dataset.labels[ids].to(self.device, non_blocking=True)
            return Labelled(graphs.select(ids), slice(None), labels)

        def training(generator: torch.Generator) -> Iterable[Labelled]:
            order = torch.randperm(count, generator=generator)
            return map(labelled, split.train[order].tensor_split(-(-count // self.batch_size)))

        batches, known, read = [], {}, 0
        for name, part in scored(split).items():
            batches += [graphs.select(ids) for ids in part.split(EVALUATION_BATCH)]
            rows = torch.arange(read, read + part.numel(), device=self.device)
            known[name] = rows, dataset.labels[part].to(self.device)
            read += part.numel()
        return Problem(training, batches, known, halve_every=self.halve_every)


class PooledBaseline(GraphBaseline):
    """A network over graphs whose nodes are added up or averaged."""

    pooling: str = checked("sum", choices=("sum", "mean"))
