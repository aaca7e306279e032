"""Datasets as training and prediction take them: on a device, split into roles and runs."""

from collections.abc import Sequence

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from vepm.data import Dataset
from vepm.data.features import is_sparse
from vepm.errors import InputError
from vepm.scale.batches import GraphStore, single_graph
from vepm.scale.executor import Run, Source
from vepm.scale.large import LargeGraph
from vepm.tasks import TASKS
from vepm.training.config import Config
from vepm.training.legacy import INEXACT

FEWEST_TO_SPLIT = 10  # with fewer labels, none is set aside
FEWEST_NODES = 2  # nodes of the smallest graph; a single node has no variance to normalise by


def pick_device(name: str) -> torch.device:
    """``"auto"`` takes a GPU if there is one; ``"cpu"`` and ``"cuda"`` insist."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but no GPU is available; use auto or cpu")
    gpus = ["cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if name not in ("cpu", *gpus):
        raise InputError(f"there is no device {name!r}; use auto, cpu or cuda")
    return torch.device(name)


def set_aside(rows: Tensor, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Split the indices of labelled nodes or graphs into four fifths and one, by class.

    A larger part of few labels would cost more accuracy than the better choice of epoch brings.
    At least one label of each class is set aside, unless it is the only one. Nothing is set aside
    of fewer than ten labels or of a single class.
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


def in_batches(dataset: Dataset, device: torch.device, config: Config) -> Source:
    """The dataset's graphs as the settings take them.

    Many graphs are stored together, one graph is a single batch. One with more nodes than a batch
    stays in main memory, unless the settings need the whole of it, which is an error.
    """
    if not TASKS[dataset.task].single_graph:
        return GraphStore(dataset.graphs, device)
    graph = dataset.graphs[0]
    if not 0 < config.training.batch_size < (graph.num_nodes or 0):
        return single_graph(graph, device)
    needs_whole = {
        f"partition {config.model.partition}": config.model.partition in ("random", "kinds"),
        "random inputs": config.model.inputs == "random",
        "the subsampled likelihood": config.training.likelihood == "subsampled",
    }
    for name in (name for name, needed in needs_whole.items() if needed):
        raise InputError(
            f"settings: {name} depends on the whole graph, and this one is trained by clusters "
            f"of {config.training.batch_size} nodes; choose another or set batch_size = 0"
        )
    return LargeGraph(graph, device)


def group_runs(dataset: Dataset, config: Config, runs: Sequence[Run], most: int) -> list[list[int]]:
    """Indices of the runs that can train at once, in groups of at most ``most``.

    Runs must take equally many steps in an epoch. Training by clusters, likelihoods that draw
    nodes or edges, many graphs with weighted edges and graphs so small that a batch may be a
    single node are trained one run at a time.
    """
    single, size = TASKS[dataset.task].single_graph, config.training.batch_size
    graphs = dataset.graphs
    if single:
        apart = size > 0
    else:
        apart = min(g.num_nodes for g in graphs) < FEWEST_NODES or "edge_weight" in graphs[0]
    if most < 2 or apart or config.training.likelihood in INEXACT or is_sparse(graphs[0].x):
        return [[i] for i in range(len(runs))]
    groups: dict[int, list[int]] = {}
    for i, run in enumerate(runs):
        # Runs have their labels in common, or the steps that these take.
        labels = run.train_on.numel()
        if not single:
            labels = -(-labels // size) if size else min(labels, 1)
        groups.setdefault(labels, []).append(i)
    return [group[i : i + most] for group in groups.values() for i in range(0, len(group), most)]
