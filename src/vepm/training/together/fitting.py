"""Several runs of one dataset and one set of settings, trained as one program."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.data.features import is_sparse
from vepm.training.batches import GRAPHS_AT_ONCE
from vepm.training.calibration import calibrate
from vepm.training.card import ModelCard
from vepm.training.config import Config
from vepm.training.fitting import Fitted, fit, new_model, pick_device, source_of
from vepm.training.state import Examples
from vepm.training.together.loop import Together
from vepm.training.together.replicas import Replicas

FEWEST_NODES = 2
"""Nodes of the smallest graph; one alone has no spread to normalise by."""
MOST = 64
"""Runs at once on a GPU; more keep it no busier."""
SHARE_OF_MEMORY = 0.5
COPIES = 40
"""Tensors of the size of all states that a pass and its gradients hold, generously."""


class Run(NamedTuple):
    """What tells one run from another."""

    train_on: Tensor
    validate_on: Tensor
    watch: Tensor | None
    seed: int


def fit_together(
    dataset: Dataset,
    config: Config,
    runs: Sequence[Run],
    device: str = "auto",
    *,
    calibrated: bool = True,
) -> list[Fitted]:
    """Train several runs side by side.

    Each starts from the weights that :func:`vepm.training.fit` would start it from, takes the
    same batches in the same order, and stops and keeps its best epoch on its own. Only what is
    drawn at random while training comes from other, equally distributed draws. One run alone is
    that function's.

    Args:
        dataset: The graphs.
        config: The settings.
        runs: What differs between the runs; they must be of one :func:`bundles`.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        calibrated: Fit how sharp the probabilities are; accuracies do not depend on it.
    """
    if len(runs) == 1:
        only = runs[0]._asdict()
        return [fit(dataset, config, **only, device=device, calibrated=calibrated)]
    where = pick_device(device)
    cards = [ModelCard.of(dataset, config, run.seed) for run in runs]
    models = [new_model(card, where) for card in cards]
    source = source_of(dataset, where)
    examples = [Examples(source, run.train_on, run.validate_on, run.watch) for run in runs]
    replicas = Replicas(models)
    together = Together(replicas, examples, [run.seed for run in runs], config.training)
    together.train()
    for model, weights, run in zip(models, replicas.states(), runs, strict=True):
        model.load_state_dict(weights)
        model.eval()
        if calibrated and run.train_on.numel():
            calibrate(model, source, run.validate_on, config.training.num_samples, int(run.seed))
    return [
        Fitted(model, card, source, course.history, course.best_epoch)
        for model, card, course in zip(models, cards, together.courses, strict=True)
    ]


def bundles(dataset: Dataset, config: Config, runs: Sequence[Run], most: int) -> list[list[int]]:
    """Numbers of the runs that can train together, at most so many at a time.

    Runs must take equally many steps in an epoch; graphs so small that a batch may be a lone
    node, clusters of a large graph, and likelihoods of random subgraphs stay alone.
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
    by_clusters = dataset.task == "node" and config.training.batch_size > 0
    if config.training.likelihood == "subsampled" or by_clusters:
        return False
    if is_sparse(dataset.graphs[0].x):
        return False
    return dataset.task == "node" or min(g.num_nodes for g in dataset.graphs) >= FEWEST_NODES


def _steps(dataset: Dataset, config: Config, run: Run) -> tuple[int, ...]:
    """What runs must have in common: labels of a graph's nodes, or steps of an epoch."""
    labels = run.train_on.numel()
    if dataset.task == "node":
        return (labels,)
    size = config.training.batch_size
    steps = -(-labels // size) if size else min(labels, 1)
    return (steps,)


def most_together(dataset: Dataset, config: Config, device: str = "auto") -> int:
    """How many runs to train together so that it pays: as many as a GPU holds, one on a CPU.

    A CPU is as busy with one small run as with many; there, runs of their own use all cores.
    """
    where = pick_device(device)
    if where.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(where)
    return max(1, min(MOST, int(free * SHARE_OF_MEMORY / _bytes_of_run(dataset, config))))


def _bytes_of_run(dataset: Dataset, config: Config) -> int:
    """About what a step of one run holds at once."""
    model = config.model
    graphs = sorted(dataset.graphs, key=lambda graph: -graph.num_nodes)[:GRAPHS_AT_ONCE]
    nodes = sum(graph.num_nodes for graph in graphs)
    edges = sum(graph.num_edges for graph in graphs)
    width = model.hidden_channels + model.encoder_channels + 2 * model.num_communities
    width += dataset.num_features if dataset.task == "graph" else 0
    numbers = nodes * width + edges * model.num_metacommunities
    return 4 * COPIES * config.training.passes * numbers
