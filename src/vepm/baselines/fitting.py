"""The one training loop of all neural baselines, for nodes and graphs alike."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vepm.data import Dataset
from vepm.data.features import is_sparse
from vepm.evaluation import Curve, Split, choose_epoch
from vepm.training import GraphBatch, GraphStore, single_graph

EVALUATION_BATCH = 512


class Classifier(nn.Module):
    """A network from a batch of graphs to class scores of its nodes or of its graphs."""

    def losses(self, batch: "Labelled") -> tuple[Tensor, Tensor]:
        """Cross-entropy of the labels in a training pass, and what is added to it."""
        loss = nn.functional.cross_entropy(self(batch.graph)[batch.rows], batch.labels)
        return loss, loss.new_zeros(())


class Labelled(NamedTuple):
    """A batch, which rows of its class scores count, and their labels."""

    graph: GraphBatch
    rows: Tensor | slice
    labels: Tensor


class Outcome(NamedTuple):
    """What a training leaves behind."""

    curve: Curve
    """``train_loss``, ``val_loss``, ``val_accuracy`` and ``test_accuracy`` per epoch."""
    scores: dict[str, Tensor]
    """Class scores of ``"val"`` and ``"test"`` at the epoch that validation chooses, or the last;
    without ``"val"`` where nothing validates."""


class Problem(NamedTuple):
    """What to learn from and what to be scored on."""

    training: Callable[[torch.Generator], Iterable[Labelled]]
    """Draws the mini-batches of one epoch."""
    held_out: dict[str, list[Labelled]]
    """Batches of the ``"val"`` and ``"test"`` parts, without those that are empty."""


def node_problem(dataset: Dataset, split: Split, row_normalize: bool, device: str) -> Problem:
    """Nodes of one graph, in one full batch."""
    x = dataset.graphs[0].x
    x = _unit_rows(x) if row_normalize else x
    # The features stay one tensor: PyG's layers take no other kind.
    graph = replace(single_graph(dataset.graphs[0], device), x=x.to(device))
    train, val, test = (
        Labelled(graph, index.to(device), dataset.labels[index].to(device))
        for index in (split.train, split.val, split.test)
    )
    parts = {"val": [val], "test": [test]}
    return Problem(lambda _: [train], {k: v for k, v in parts.items() if v[0].labels.numel()})


def _unit_rows(x: Tensor) -> Tensor:
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


def graph_problem(dataset: Dataset, split: Split, batch_size: int, device: str) -> Problem:
    """Graphs, in random mini-batches of about equal size."""
    graphs, count = GraphStore(dataset.graphs, device), split.train.numel()

    def labelled(ids: Tensor) -> Labelled:
        labels = dataset.labels[ids].to(device, non_blocking=True)
        return Labelled(graphs.select(ids), slice(None), labels)

    def training(generator: torch.Generator) -> Iterable[Labelled]:
        order = torch.randperm(count, generator=generator)
        return map(labelled, split.train[order].tensor_split(-(-count // batch_size)))

    parts = {"val": split.val, "test": split.test}
    return Problem(
        training,
        {
            k: [labelled(ids) for ids in v.split(EVALUATION_BATCH)]
            for k, v in parts.items()
            if len(v)
        },
    )


def fit(
    model: Classifier,
    problem: Problem,
    optimizer: Optimizer,
    *,
    epochs: int,
    generator: torch.Generator,
    scheduler: LRScheduler | None = None,
    patience: int | None = None,
) -> Outcome:
    """Train a model in place, and score the held-out parts after every epoch.

    Args:
        model: what to train.
        problem: its data.
        optimizer: over the model's parameters.
        epochs: how many at most.
        generator: of the order of mini-batches.
        scheduler: steps once an epoch.
        patience: stop when for so many epochs validation accuracy stayed below its best and the
            loss above its lowest.
    """
    curve: Curve = {
        name: [] for name in ("train_loss", "val_loss", "val_accuracy", "test_accuracy")
    }
    best: dict[str, Tensor] = {}
    for _ in range(epochs):
        curve["train_loss"].append(_train_epoch(model, problem.training(generator), optimizer))
        if scheduler is not None:
            scheduler.step()
        scores = _score(model, problem.held_out, curve)
        if _is_best(curve):
            best = scores
        if patience is not None and _stalled(curve, patience):
            break
    return Outcome(curve, best)


def _is_best(curve: Curve) -> bool:
    """Whether the last epoch is the one to choose so far."""
    accuracy = curve["val_accuracy"]
    return not accuracy or choose_epoch(accuracy, curve["val_loss"]) == len(accuracy) - 1


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
def _score(
    model: Classifier, held_out: dict[str, list[Labelled]], curve: Curve
) -> dict[str, Tensor]:
    """Class scores of the held-out parts; their accuracy goes to the curve."""
    model.eval()
    scores: dict[str, Tensor] = {}
    logits_of: dict[int, Tensor] = {}
    for name, batches in held_out.items():
        for batch in batches:
            # Validation and test nodes share one graph; one pass serves both.
            if id(batch.graph) not in logits_of:
                logits_of[id(batch.graph)] = model(batch.graph)
        logits = scores[name] = torch.cat(
            [logits_of[id(batch.graph)][batch.rows] for batch in batches]
        )
        labels = torch.cat([batch.labels for batch in batches])
        accuracy = (logits.argmax(dim=1) == labels).double().mean()
        curve[f"{name}_accuracy"].append(float(accuracy))
        if name == "val":
            curve["val_loss"].append(float(nn.functional.cross_entropy(logits, labels)))
    return scores


def _stalled(curve: Curve, patience: int) -> bool:
    accuracy, loss = curve["val_accuracy"], curve["val_loss"]
    if len(accuracy) <= patience:
        return False
    recent, before = slice(-patience, None), slice(None, -patience)
    return max(accuracy[recent]) < max(accuracy[before]) and min(loss[recent]) > min(loss[before])
