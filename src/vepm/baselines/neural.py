"""Baselines that are neural networks, and the loop with early stopping that trains all of them."""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Adam
from torch.optim.lr_scheduler import StepLR

from vepm.baselines.base import COLUMNS, Baseline, Classifier, Labelled
from vepm.data import Dataset
from vepm.evaluation import Curve, Split, choose_epoch
from vepm.schema import checked
from vepm.training import GraphBatch


class Problem(NamedTuple):
    """What to learn from, how, and what to be scored on."""

    training: Callable[[torch.Generator], Iterable[Labelled]]  # draws the mini-batches of one epoch
    graphs: list[GraphBatch]  # what is read after every epoch
    held_out: dict[str, tuple[Tensor, Tensor]]  # rows of their scores, and labels: "val", "test"
    patience: int | None = None  # epochs in which neither validation measure reached its best
    halve_every: int | None = None  # epochs after which the learning rate is halved, each time


class NeuralBaseline(Baseline):
    """A baseline trained by Adam, with weight decay where ``decayed`` says so."""

    network: ClassVar[Callable[..., Classifier]]
    """A fresh network, from the widths of its input and output, and the baseline."""
    decayed: ClassVar[str] = ".*"  # names of parameters with weight decay, as a regular expression
    epochs: int = checked(200, low=1)
    learning_rate: float = checked(0.01, above=0)
    weight_decay: float = checked(5e-4, low=0)
    dropout: float = checked(0.5, low=0, below=1)
    device: str = "cpu"

    def train(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, Tensor]:
        """Train and score every epoch."""
        curve, scores = self.fit(dataset, split, seed)
        return curve, torch.softmax(scores["test"], dim=1)

    def fit(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, dict[str, Tensor]]:
        """Train a fresh network, in mini-batches drawn by the seed, and score it every epoch.

        Gives the curve, and the class scores of each held-out part, ``"val"`` and ``"test"``, at
        the epoch that validation chooses.
        """
        model = self.build(dataset.num_features, dataset.num_classes).to(self.device)
        groups: list[Any] = [{"params": [], "weight_decay": self.weight_decay}, {"params": []}]
        for name, parameter in model.named_parameters():
            group = groups[0] if re.fullmatch(self.decayed, name) else groups[1]
            group["params"].append(parameter)
        problem, optimizer = self.problem(dataset, split), Adam(groups, lr=self.learning_rate)
        scheduler = StepLR(optimizer, problem.halve_every or self.epochs, gamma=0.5)
        generator = torch.Generator().manual_seed(seed)
        curve: Curve = {name: [] for name in COLUMNS}
        best: dict[str, Tensor] = {}
        accuracy, loss = curve["val_accuracy"], curve["val_loss"]
        for _ in range(self.epochs):
            curve["train_loss"].append(_train_epoch(model, problem.training(generator), optimizer))
            scheduler.step()
            scores = _score(model, problem, curve)
            if not accuracy or choose_epoch(accuracy, loss) == len(accuracy) - 1:
                best = scores
            if problem.patience is not None and _stalled(accuracy, loss, problem.patience):
                break
        return curve, best

    @abstractmethod
    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """What to learn, how, and what to be scored on."""

    def build(self, in_channels: int, out_channels: int) -> Classifier:
        """A fresh network."""
        return type(self).network(in_channels, out_channels, self)


def _train_epoch(model: Classifier, batches: Iterable[Labelled], optimizer: Adam) -> float:
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
