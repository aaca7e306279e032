"""Which runs can train at once, and how many of them should."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.data.features import is_sparse
from vepm.scale.batches import GRAPHS_AT_ONCE
from vepm.tasks import TASKS
from vepm.training.config import Config
from vepm.training.sources import pick_device

FEWEST_NODES = 2
"""Nodes of the smallest graph; a single node has no variance to normalise by."""
MOST = 64
"""Runs at once on a GPU; more do not use it better."""
SHARE_OF_MEMORY = 0.5
COPIES = 40
"""Upper estimate of the tensors, of the size of all states, that a pass and its gradients hold."""


class Run(NamedTuple):
    """What distinguishes the runs of one dataset and one set of settings."""

    train_on: Tensor
    """Indices of the labelled nodes or graphs to learn from."""
    validate_on: Tensor
    """Indices of those that choose the epoch."""
    watch: Tensor | None
    """Indices of those whose accuracy is recorded."""
    seed: int


def group_runs(dataset: Dataset, config: Config, runs: Sequence[Run], most: int) -> list[list[int]]:
    """Indices of the runs that can train at once, in groups of at most ``most``.

    Runs must take equally many steps in an epoch. Training by clusters, the subsampled likelihood
    and graphs so small that a batch may be a single node are trained one run at a time.
    """
    if most < 2 or not _can_share(dataset, config):
        return [[i] for i in range(len(runs))]
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, run in enumerate(runs):
        groups.setdefault(_steps(dataset, config, run), []).append(i)
    return [
        group[first : first + most]
        for group in groups.values()
        for first in range(0, len(group), most)
    ]


def _can_share(dataset: Dataset, config: Config) -> bool:
    by_clusters = TASKS[dataset.task].single_graph and config.training.batch_size > 0
    if config.training.likelihood == "subsampled" or by_clusters:
        return False
    if is_sparse(dataset.graphs[0].x):
        return False
    return (
        TASKS[dataset.task].single_graph or min(g.num_nodes for g in dataset.graphs) >= FEWEST_NODES
    )


def _steps(dataset: Dataset, config: Config, run: Run) -> tuple[int, ...]:
    """What runs must have in common: labels of a graph's nodes, or steps of an epoch."""
    labels = run.train_on.numel()
    if TASKS[dataset.task].single_graph:
        return (labels,)
    size = config.training.batch_size
    steps = -(-labels // size) if size else min(labels, 1)
    return (steps,)


def most_runs_at_once(dataset: Dataset, config: Config, device: str = "auto") -> int:
    """How many runs to train at once: as many as fit on a GPU, one on a CPU.

    A CPU gains nothing from it; there, separate processes use all cores.
    """
    where = pick_device(device)
    if where.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(where)
    return max(1, min(MOST, int(free * SHARE_OF_MEMORY / _bytes_of_run(dataset, config))))


def _bytes_of_run(dataset: Dataset, config: Config) -> int:
    """Estimate of the memory of a step of one run."""
    model = config.model
    graphs = sorted(dataset.graphs, key=lambda graph: -graph.num_nodes)[:GRAPHS_AT_ONCE]
    nodes = sum(graph.num_nodes for graph in graphs)
    edges = sum(graph.num_edges for graph in graphs)
    width = model.hidden_channels + model.encoder_channels + 2 * model.num_communities
    width += dataset.num_features if not TASKS[dataset.task].single_graph else 0
    values = nodes * width + edges * model.num_metacommunities
    return 4 * COPIES * config.training.passes * values
