"""What every baseline is: settings that can be called with data, a split and a seed."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, dataclass_transform

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vepm.data.dataset import Dataset, require_labels
from vepm.errors import InputError
from vepm.evaluation import Curve, RunResult, Split
from vepm.measures import class_measures
from vepm.tasks import TaskName
from vepm.training import GraphBatch

COLUMNS = ("train_loss", "val_loss", "val_accuracy", "test_accuracy")


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
        measures = class_measures(found, dataset.labels[split.test])
        known = (curve, seconds, self.settings(), measures)
        return RunResult.from_curve(self.name, dataset.name, split.name, seed, *known)

    @abstractmethod
    def train(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, Tensor]:
        """The curve of a training, and class probabilities of the test part.

        The probabilities are those at the epoch that validation chooses, or else the last.
        """

    def settings(self) -> dict[str, Any]:
        """Everything but the name, ready for JSON."""
        values = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        del values["name"]
        return values


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


def scored(split: Split) -> dict[str, Tensor]:
    """Indices of the parts that are scored, by name; validation only where there is some."""
    return {"val": split.val, "test": split.test} if split.val.numel() else {"test": split.test}


def single_epoch_curve(predicted: Tensor, labels: Tensor, split: Split) -> Curve:
    """The curve of a method without epochs, from its predictions for every node or graph."""
    hit = (predicted == labels).double()
    found = {f"{name}_accuracy": [float(hit[rows].mean())] for name, rows in scored(split).items()}
    return {name: found.get(name, []) for name in COLUMNS}
