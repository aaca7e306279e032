"""From a dataset and settings to a trained model: the one call behind every user of training."""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.errors import DivergedError, InputError
from vepm.nn import VEPM
from vepm.scale.batches import GraphBatch, GraphStore, single_graph
from vepm.scale.clusters import Clusters
from vepm.scale.executor import Examples, OneRun, Row, Source
from vepm.scale.large import LargeGraph, check_partition
from vepm.scale.many import ManyRuns
from vepm.scale.memory import Widths, require_memory
from vepm.scale.ordering import good_order, in_order, places, worth_ordering
from vepm.scale.processes import ProcessGroup, own_device
from vepm.training.calibration import calibrate
from vepm.training.card import ModelCard
from vepm.training.checkpoint import load_state, save_state
from vepm.training.checks import signs_of_failure
from vepm.training.config import Config
from vepm.training.loop import train
from vepm.training.prediction import scores
from vepm.training.runs_at_once import Run
from vepm.training.sources import in_batches, pick_device
from vepm.training.state import PHASES, Course, Progress, TrainingState

SECONDS_BETWEEN_SAVES = 10.0
NONE = torch.empty(0, dtype=torch.long)


UNTIED = ("feature_names", "added_positions")
"""Entries of a card that a run may be resumed with whatever they are."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model and its history."""

    model: VEPM
    card: ModelCard
    source: Source
    history: list[Row]
    best_epoch: int
    warnings: tuple[str, ...] = ()
    """Signs that the training failed, with what to try next; none if it was not calibrated."""

    @property
    def best(self) -> Row:
        """History row of the epoch whose weights were kept; empty without finetuning."""
        rows = [row for row in self.history if row["phase"] == "finetune"]
        return rows[self.best_epoch] if rows else {}


def new_model(card: ModelCard, device: torch.device) -> VEPM:
    """A model initialised from its seed; the caller's random state is left as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(card.seed)
        return card.build().to(device)


def fit(
    dataset: Dataset,
    config: Config,
    *,
    train_on: Tensor = NONE,
    validate_on: Tensor = NONE,
    watch: Tensor | None = None,
    class_weights: Tensor | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    group: ProcessGroup | None = None,
    check_memory: bool = True,
    calibrated: bool = True,
) -> Fitted:
    """Train on part of a dataset.

    Args:
        dataset: The graphs.
        config: The settings.
        train_on: Indices of the labelled nodes or graphs to learn from; with none, the
            communities are learned from the edges alone.
        validate_on: Indices of those that choose the epoch.
        watch: Indices of those whose accuracy is recorded and decides nothing.
        class_weights: Weight of the labels of each class, in the loss and where the epoch is
            chosen; None weighs all alike.
        seed: Seed of the weights and of all that is sampled.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: Called after every epoch.
        checkpoint: File to save to every few seconds; if it exists, training resumes from it.
        group: The processes that train the model; each of them calls this.
        check_memory: Refuse what will not fit in memory before anything large is allocated.
        calibrated: Fit the inverse temperature of the probabilities; accuracies do not change.
    """
    group = group or ProcessGroup()
    where = pick_device(device if group.alone else own_device(device))
    if check_memory:
        require_memory(dataset, _widths(config), config.training.batch_size, where)
    card = ModelCard.of(dataset, config, seed)
    dataset = card.prepare(dataset)
    model = new_model(card, where)
    source = in_batches(dataset, where, config.training.batch_size)
    if isinstance(source, GraphBatch) and not group.alone:
        raise InputError(
            f"{dataset.name}: one graph that is taken at once cannot be shared between "
            f"{group.size} processes; divide it into clusters with --batch-nodes"
        )
    examples = Examples(source, train_on, validate_on, watch)
    if isinstance(source, LargeGraph):
        examples = _by_clusters(examples, source, config, group, seed)
    elif isinstance(source, GraphBatch) and _order_is_free(config):
        examples = _in_order(examples, dataset, where)
    if class_weights is not None:
        examples = replace(examples, class_weights=class_weights.to(where))
    executor = OneRun(
        model,
        examples,
        seed,
        scores=scores,
        batch_size=config.training.batch_size,
        group=group,
        capture=config.training.likelihood != "subsampled",
    )
    state = TrainingState.start(executor, config.training)
    try:
        _train_saving(state, executor, card, config, progress, checkpoint)
    finally:
        executor.close()
    run = Run(train_on, validate_on, watch, card.seed)
    return _finished(model, card, source, state.courses[0], run, calibrated)


def fit_many(
    dataset: Dataset,
    config: Config,
    runs: Sequence[Run],
    device: str = "auto",
    *,
    calibrated: bool = True,
) -> list[Fitted]:
    """Train many runs at once.

    Each starts from the weights that :func:`fit` would start it from, takes the same batches in
    the same order, and stops and keeps its best epoch on its own. Only what is sampled while
    training differs, with the same distribution. A single run is trained by :func:`fit`.

    Args:
        dataset: The graphs.
        config: The settings.
        runs: What differs between the runs; they must be of one group of :func:`group_runs`.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        calibrated: Fit the inverse temperature of the probabilities; accuracies do not change.
    """
    if len(runs) == 1:
        only = runs[0]._asdict()
        return [fit(dataset, config, **only, device=device, calibrated=calibrated)]
    where = pick_device(device)
    measured = ModelCard.of(dataset, config)
    dataset = measured.prepare(dataset)
    cards = [replace(measured, seed=int(run.seed)) for run in runs]
    models = [new_model(card, where) for card in cards]
    source = in_batches(dataset, where, config.training.batch_size)
    examples = [Examples(source, run.train_on, run.validate_on, run.watch) for run in runs]
    seeds = [run.seed for run in runs]
    executor = ManyRuns(models, examples, seeds, config.training.batch_size)
    state = train(TrainingState.start(executor, config.training), config.training)
    return [
        _finished(model, card, source, course, run, calibrated)
        for model, card, course, run in zip(models, cards, state.courses, runs, strict=True)
    ]


def _finished(
    model: VEPM, card: ModelCard, source: Source, course: Course, run: Run, calibrated: bool
) -> Fitted:
    found = (course.history, course.best_epoch)
    if not calibrated:
        return Fitted(model, card, source, *found)
    if run.train_on.numel():
        calibrate(model, source, run.validate_on, card.config.training.num_samples, card.seed)
    signs = signs_of_failure(model, card, source, run.train_on, run.validate_on, *found)
    return Fitted(model, card, source, *found, tuple(signs))


def _train_saving(
    state: TrainingState,
    executor: OneRun,
    card: ModelCard,
    config: Config,
    progress: Progress | None,
    checkpoint: Path | None,
) -> None:
    """Train from the checkpoint, if there is one, and save to it."""
    if checkpoint is None:
        train(state, config.training, progress=progress)
        return
    group = executor.group
    fingerprint = _fingerprint(card, executor.examples[0])
    # The first process has prepared the folder; what it finds there counts for all.
    if group.from_first(checkpoint.exists):
        load_state(checkpoint, state, fingerprint)
    _check_same_state(state, group, checkpoint)
    on_epoch = _saver(checkpoint, fingerprint) if group.leads else None
    unfinished = state.phase != PHASES[-1]
    try:
        train(state, config.training, progress=progress, on_epoch=on_epoch)
    except DivergedError as error:
        if not checkpoint.exists():
            raise
        raise DivergedError(f"{error}; the last good state is kept in {checkpoint}") from None
    if group.leads and unfinished:
        # Whatever stops the work that follows, nothing is trained again.
        save_state(checkpoint, state, fingerprint)


def _widths(config: Config) -> Widths:
    model = config.model
    return Widths(
        hidden=model.hidden_channels,
        layers=model.bank_layers + model.composer_layers,
        encoder=model.encoder_channels,
        communities=model.num_communities,
        metacommunities=model.num_metacommunities,
        passes=config.training.passes,
    )


def _by_clusters(
    examples: Examples, graph: LargeGraph, config: Config, group: ProcessGroup, seed: int
) -> Examples:
    """The examples with the clusters of their graph."""
    if config.training.likelihood == "subsampled":
        raise InputError(
            "settings: training by clusters needs the exact likelihood; use balanced or summed"
        )
    if config.model.inputs == "random":
        raise InputError(
            "settings: random inputs belong to the nodes of a whole graph, and this one is trained "
            "by clusters; use other inputs"
        )
    check_partition(config.model.partition)
    clusters = Clusters(
        graph,
        examples.train,
        num_communities=config.model.num_communities,
        batch_size=config.training.batch_size,
        group=group,
        seed=seed,
    )
    return Examples(graph, examples.train, examples.val, examples.test, clusters)


def _order_is_free(config: Config) -> bool:
    return "random" not in (config.model.partition, config.model.inputs)


def _in_order(examples: Examples, dataset: Dataset, device: torch.device) -> Examples:
    """The examples with the nodes of a large graph in an order that suits a CPU's cache."""
    graph = dataset.graphs[0]
    if not worth_ordering(graph, device):
        return examples
    order = good_order(graph)
    place = places(order)
    return Examples(
        single_graph(in_order(graph, order)),
        place[examples.train],
        place[examples.val],
        None if examples.test is None else place[examples.test],
    )


def _check_same_state(state: TrainingState, group: ProcessGroup, checkpoint: Path) -> None:
    """All processes must resume from the same epoch."""
    here = (state.phase, state.courses[0].epoch)
    if here != group.from_first(lambda: here):
        raise InputError(
            f"{checkpoint}: process {group.rank} reads another state than the first; keep "
            "the run folder where all machines see it"
        )


def _saver(path: Path, fingerprint: dict[str, Any]) -> Callable[[TrainingState], None]:
    # Saved only between epochs: an interrupt may come in the middle of a step, and what that
    # leaves behind is not a state to resume from.
    last = -math.inf

    def save_now_and_then(state: TrainingState) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_SAVES:
            save_state(path, state, fingerprint)
            last = time.monotonic()

    return save_now_and_then


def _fingerprint(card: ModelCard, examples: Examples) -> dict[str, Any]:
    digest = hashlib.blake2b(digest_size=16)
    source = examples.source
    if isinstance(source, LargeGraph):
        edges, sizes = source.columns, source.degree
    elif isinstance(source, GraphStore):
        edges, sizes = source.edge_index, source.nodes
    else:
        edges, sizes = source.edges.edge_index, NONE
    x = source.x
    if not isinstance(x, Tensor):
        features: tuple[Tensor, ...] = (x.row_pointer, x.columns, x.values)
    else:
        features = (x.indices(), x.values()) if x.layout == torch.sparse_coo else (x,)
    for tensor in (*features, sizes, edges, source.y, examples.train, examples.val):
        # Shapes too: the same bytes can be split in several ways.
        digest.update(repr(tuple(tensor.shape)).encode())
        digest.update(tensor.cpu().contiguous().numpy())
    # The data tell these apart, and checkpoints of earlier versions have none.
    described = {k: v for k, v in card.description().items() if k not in UNTIED}
    if examples.class_weights is not None:
        described["class_weights"] = examples.class_weights.tolist()
    return described | {"data": digest.hexdigest()}
