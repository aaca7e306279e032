"""The one training loop of all neural baselines, for nodes and graphs alike."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import StepLR

from vepm.data.features import is_sparse
from vepm.evaluation import Curve, Split, choose_epoch
from vepm.training import GraphBatch

COLUMNS = ("train_loss", "val_loss", "val_accuracy", "test_accuracy")


class Labelled(NamedTuple):
    """A batch, which rows of its class scores count, and their labels."""

    graph: GraphBatch
    rows: Tensor | slice
    labels: Tensor


class Classifier(nn.Module):
    """A network from a batch of graphs to class scores of its nodes or of its graphs."""

    def losses(self, batch: Labelled) -> tuple[Tensor, Tensor]:
        """Cross-entropy of the labels in a training pass, and what is added to it."""
        loss = nn.functional.cross_entropy(self(batch.graph)[batch.rows], batch.labels)
        return loss, loss.new_zeros(())


Outcome = tuple[Curve, dict[str, Tensor]]
"""The curve, and the class scores of ``"val"`` and ``"test"`` at the epoch that validation chooses,
or the last; without ``"val"`` where nothing validates."""


class Problem(NamedTuple):
    """What to learn from, how, and what to be scored on."""

    training: Callable[[torch.Generator], Iterable[Labelled]]  # draws the mini-batches of one epoch
    graphs: list[GraphBatch]  # what is read after every epoch
    held_out: dict[str, tuple[Tensor, Tensor]]
    """Rows of their class scores, and labels, of ``"val"`` and ``"test"``; none is empty."""
    patience: int | None = None
    """Stop when for so many epochs validation accuracy stayed below its best and the loss above
    its lowest; None never stops."""
    halve_every: int | None = None
    """Epochs after which the learning rate is halved, again and again; None never halves it."""


def scored(split: Split) -> dict[str, Tensor]:
    """Indices of the parts that are scored, by name; validation only where there is some."""
    return {"val": split.val, "test": split.test} if split.val.numel() else {"test": split.test}


def unit_rows(x: Tensor) -> Tensor:
    """Rows scaled to unit sum, of a table or of sparse features."""
    if not is_sparse(x):
        return nn.functional.normalize(x, p=1.0)
    totals = x.new_zeros(x.size(0)).to_dense().index_add(0, x.indices()[0], x.values().abs())
    return with_values(x, x.values() / totals.clamp_min(1e-12)[x.indices()[0]])


def with_values(x: Tensor, values: Tensor) -> Tensor:
    """Sparse features with other values in the same places."""
    return torch.sparse_coo_tensor(
        x.indices(), values, x.shape, check_invariants=False, is_coalesced=True
    )


def fit(
    model: Classifier, problem: Problem, optimizer: Optimizer, epochs: int, seed: int
) -> Outcome:
    """Train a model in place, and score the held-out parts after every epoch.

    The seed is that of the order of mini-batches; there are so many epochs at most.
    """
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


def single_epoch_curve(predicted: Tensor, labels: Tensor, split: Split) -> Curve:
    """The curve of a method without epochs, from its predictions for every node or graph."""
    hit = (predicted == labels).double()
    found = {f"{name}_accuracy": [float(hit[rows].mean())] for name, rows in scored(split).items()}
    return {name: found.get(name, []) for name in COLUMNS}


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
        accuracy = (logits.argmax(dim=1) == labels).double().mean()
        curve[f"{name}_accuracy"].append(float(accuracy))
        if name == "val":
            curve["val_loss"].append(float(nn.functional.cross_entropy(logits, labels)))
    return scores


def _stalled(accuracy: list[float], loss: list[float], patience: int) -> bool:
    if len(accuracy) <= patience:
        return False
    recent, before = slice(-patience, None), slice(None, -patience)
    return max(accuracy[recent]) < max(accuracy[before]) and min(loss[recent]) > min(loss[before])
