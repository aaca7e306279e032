"""From a dataset and settings to a trained model: the one call behind every user of training."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.errors import DivergedError, InputError
from vepm.nn import VEPM
from vepm.scale.batches import GraphBatch
from vepm.scale.clusters import Clusters
from vepm.scale.ddp import ProcessGroup, own_device
from vepm.scale.executor import OneRun, Row, Run, Source
from vepm.scale.large import LargeGraph
from vepm.scale.many import ManyRuns
from vepm.training.card import ModelCard
from vepm.training.checkpoint import fingerprint_of, load_state, save_state
from vepm.training.checks import signs_of_failure
from vepm.training.config import Config
from vepm.training.legacy import INEXACT
from vepm.training.loop import train
from vepm.training.prediction import calibrate, scores
from vepm.training.sources import in_batches, pick_device, require_memory
from vepm.training.state import PHASES, Course, Fitted, Progress, TrainingState

SECONDS_BETWEEN_SAVES = 10.0
NONE = torch.empty(0, dtype=torch.long)


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
        watch: Indices of those whose accuracy is recorded, with no influence.
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
    card = ModelCard.of(dataset, config, seed)
    if check_memory:
        require_memory(dataset, card, where)
    weights = None if class_weights is None else class_weights.to(where)
    run = Run(train_on, validate_on, watch, card.seed, weights)
    dataset = card.prepare(dataset)
    model = new_model(card, where)
    source = in_batches(dataset, where, config)
    if isinstance(source, GraphBatch) and not group.alone:
        raise InputError(
            f"{dataset.name}: one graph that is taken at once cannot be shared between "
            f"{group.size} processes; divide it into clusters with --batch-nodes"
        )
    clusters = None
    if isinstance(source, LargeGraph):
        sizes = config.model.num_communities, config.training.batch_size
        clusters = Clusters(source, train_on, *sizes, group=group, seed=card.seed)
    executor = _one_run(model, source, run, card, group, clusters)
    state = TrainingState.start(executor, config.training)
    _train_saving(state, executor, card, progress, checkpoint)
    return _fitted(model, card, source, state.courses[0], run, calibrated)


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
    training differs, with the same distribution. A single run is trained by :func:`fit`. Runs of
    one seed on one graph are pretrained once, since pretraining reads neither labels nor splits.
    They must be of one group of :func:`group_runs`.
    """
    if len(runs) == 1:
        only = runs[0]._asdict()
        return [fit(dataset, config, **only, device=device, calibrated=calibrated)]
    where = pick_device(device)
    measured = ModelCard.of(dataset, config)
    dataset = measured.prepare(dataset)
    cards = [replace(measured, seed=int(run.seed)) for run in runs]
    models = [new_model(card, where) for card in cards]
    source = in_batches(dataset, where, config)
    assert not isinstance(source, LargeGraph)
    shared: list[Row] = []
    if len({run.seed for run in runs}) == 1 and isinstance(source, GraphBatch):
        shared = _pretrain_once(models, source, cards[0])
    executor = ManyRuns(models, source, runs, config.training.batch_size)
    state = TrainingState.start(executor, config.training)
    if shared:
        for course in state.courses:
            course.history += shared
        state.enter("finetune")
    train(state, config.training)
    return [
        _fitted(model, card, source, course, run, calibrated)
        for model, card, course, run in zip(models, cards, state.courses, runs, strict=True)
    ]


def _one_run(
    model: VEPM,
    source: Source,
    run: Run,
    card: ModelCard,
    group: ProcessGroup | None = None,
    clusters: Clusters | None = None,
) -> OneRun:
    return OneRun(
        model,
        source,
        run,
        scores=scores,
        batch_size=card.config.training.batch_size,
        group=group,
        capture=card.config.training.likelihood not in INEXACT,
        clusters=clusters,
    )


def _pretrain_once(models: Sequence[VEPM], source: GraphBatch, card: ModelCard) -> list[Row]:
    """Pretrain models of one seed, which differ in nothing that pretraining reads."""
    config = card.config.training
    executor = _one_run(models[0], source, Run(NONE, NONE, seed=card.seed), card)
    state = TrainingState.start(executor, config)
    train(state, config, until="finetune")
    for model in models:
        model.load_state_dict(models[0].state_dict())
        model.train()
    return state.courses[0].history


def _fitted(
    model: VEPM, card: ModelCard, source: Source, course: Course, run: Run, calibrated: bool
) -> Fitted:
    """A trained model, perhaps calibrated on its validation labels and checked."""
    found = Fitted(model, card, source, course.history, course.best_epoch)
    if not calibrated:
        return found
    if run.train_on.numel():
        calibrate(model, source, run.validate_on, card.config.training.num_samples, card.seed)
    return replace(found, warnings=tuple(signs_of_failure(found, run.train_on, run.validate_on)))


def _train_saving(
    state: TrainingState,
    executor: OneRun,
    card: ModelCard,
    progress: Progress | None,
    checkpoint: Path | None,
) -> None:
    """Train from the checkpoint, if there is one, and save to it."""
    config, group = card.config.training, executor.group
    if checkpoint is None:
        train(state, config, progress=progress)
        return
    fingerprint = fingerprint_of(card, executor)
    # The first process has prepared the folder; what it finds there counts for all.
    if group.from_first(checkpoint.exists):
        load_state(checkpoint, state, fingerprint)
    here = (state.phase, state.courses[0].epoch)
    if here != group.from_first(lambda: here):
        raise InputError(
            f"{checkpoint}: process {group.rank} reads another state than the first; keep "
            "the run folder where all machines see it"
        )
    last = -math.inf

    # Saved only between epochs: an interrupt may come in the middle of a step, and what that
    # leaves behind is not a state to resume from.
    def save_now_and_then(state: TrainingState) -> None:
        nonlocal last
        if group.leads and time.monotonic() - last >= SECONDS_BETWEEN_SAVES:
            save_state(checkpoint, state, fingerprint)
            last = time.monotonic()

    unfinished = state.phase != PHASES[-1]
    try:
        train(state, config, progress=progress, on_epoch=save_now_and_then)
    except DivergedError as error:
        if not checkpoint.exists():
            raise
        raise DivergedError(f"{error}; the last good state is kept in {checkpoint}") from None
    if group.leads and unfinished:
        # Whatever stops the work that follows, nothing is trained again.
        save_state(checkpoint, state, fingerprint)
