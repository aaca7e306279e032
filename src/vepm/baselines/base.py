"""What every baseline is: settings that can be called to make a run."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from vepm.baselines.fitting import Classifier, Labelled, Outcome, Problem, fit, scored, unit_rows
from vepm.data.dataset import Dataset, require_labels
from vepm.errors import InputError
from vepm.evaluation import Curve, RunResult, Split
from vepm.schema import checked
from vepm.tasks import TASKS, TaskName
from vepm.training import GraphStore, single_graph

EVALUATION_BATCH = 512


@dataclass(frozen=True, kw_only=True)
class Baseline(ABC):
    """A method of comparison: frozen settings, called with data, split and seed.

    Args:
        name: what to call it in results.

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
        named = (self.name, dataset.name, split.name, seed)
        return RunResult.from_curve(*named, curve, seconds, self.settings(), measures)

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


@dataclass(frozen=True, kw_only=True)
class NeuralBaseline(Baseline):
    """A baseline trained by Adam, whose weight decay is for the :meth:`decayed` parameters."""

    network: ClassVar[type[Classifier]]
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
        decayed = self.decayed(model)
        others = [p for p in model.parameters() if p not in set(decayed)]
        groups: list[dict[str, Any]] = [
            {"params": decayed, "weight_decay": self.weight_decay},
            {"params": others},
        ]
        optimizer = torch.optim.Adam(groups, lr=self.learning_rate)
        return fit(model, self.problem(dataset, split), optimizer, self.epochs, seed)

    @abstractmethod
    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """What to learn, how, and what to be scored on."""

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        return self.network(in_channels, out_channels, self)

    def decayed(self, model: nn.Module) -> list[Parameter]:
        """The parameters that weight decay is for."""
        return list(model.parameters())


@dataclass(frozen=True, kw_only=True)
class NodeBaseline(NeuralBaseline):
    """A network over one graph, trained in full batches.

    Args:
        patience: stop when validation has not improved for so many epochs; None never stops.
        row_normalize: scale each node's features to unit sum first.
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
        known = {
            name: (rows.to(device), dataset.labels[rows].to(device))
            for name, rows in (("train", split.train), *scored(split).items())
        }
        train = Labelled(graph, *known.pop("train"))
        return Problem(lambda _: [train], [graph], known, patience=self.patience)


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class PooledBaseline(GraphBaseline):
    """A network over graphs whose nodes are added up or averaged."""

    pooling: str = checked("sum", choices=("sum", "mean"))
