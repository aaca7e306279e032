"""Datasets as training and prediction take them: on a device, split into roles."""

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from vepm.data import Dataset
from vepm.errors import InputError
from vepm.scale.batches import GraphBatch, GraphStore, single_graph
from vepm.scale.executor import Source
from vepm.scale.large import LargeGraph
from vepm.tasks import TASKS

FEWEST_TO_SPLIT = 10
"""With fewer labels, none is set aside."""


def pick_device(name: str) -> torch.device:
    """``"auto"`` takes a GPU if there is one; ``"cpu"`` and ``"cuda"`` insist."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but no GPU is available; use auto or cpu")
    try:
        return torch.device(name)
    except RuntimeError:
        raise InputError(f"there is no device {name!r}; use auto, cpu or cuda") from None


def set_aside(rows: Tensor, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Split labelled nodes or graphs into four fifths and one, each class in proportion.

    A larger part of few labels would cost more accuracy than the better choice of epoch brings.
    At least one label of each class is set aside, unless it is the only one. Nothing is set aside
    of fewer than ten labels or of a single class.

    Args:
        rows: Their indices.
        y: All labels.
        seed: Seed of the split.
    """
    counts = torch.bincount(y[rows])
    spare, classes = rows[counts[y[rows]] > 1], int((counts > 1).sum())
    if len(spare) < FEWEST_TO_SPLIT or classes < 2:
        return rows, rows[:0]
    size = max(len(spare) // 5, classes)
    labels = y[spare].numpy()
    _, aside = train_test_split(spare.numpy(), test_size=size, stratify=labels, random_state=seed)
    aside = torch.from_numpy(np.sort(aside))
    return rows[~torch.isin(rows, aside)].sort().values, aside


def source_of(dataset: Dataset, device: torch.device) -> GraphBatch | GraphStore:
    """The dataset's graphs on the device: one graph as a batch, or a store of many."""
    if TASKS[dataset.task].single_graph:
        return single_graph(dataset.graphs[0], device)
    return GraphStore(dataset.graphs, device)


def in_batches(dataset: Dataset, device: torch.device, batch_size: int) -> Source:
    """The same, but one graph with more nodes than a batch stays in main memory."""
    single = TASKS[dataset.task].single_graph
    if single and 0 < batch_size < (dataset.graphs[0].num_nodes or 0):
        return LargeGraph(dataset.graphs[0], device)
    return source_of(dataset, device)
