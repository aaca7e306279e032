"""From a dataset and settings to a trained model: the function behind all training."""

import functools
import math
import operator
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.data.scaling import homophily
from vepm.errors import DivergedError, InputError
from vepm.scale.batches import GraphBatch
from vepm.scale.ddp import ProcessGroup, own_device
from vepm.scale.executor import OneRun, Run
from vepm.scale.large import LargeGraph
from vepm.scale.many import ManyRuns
from vepm.training.card import ModelCard
from vepm.training.config import INEXACT, TRIED, Config
from vepm.training.fitted import Fitted, signs_of_failure
from vepm.training.loop import PHASES, Course, Pretrained, Progress, TrainingState, train
from vepm.training.prediction import calibrate, scores
from vepm.training.saving import fingerprint_of, load_state, save_state
from vepm.training.sources import in_batches, pick_device, require_memory

SECONDS_BETWEEN_SAVES = 10.0
HOMOPHILOUS = 0.2  # homophily from which on "sage", which keeps a node apart, is not tried
NONE = torch.empty(0, dtype=torch.long)


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
        class_weights: Weight of each class in the loss and where the epoch is chosen.
        seed: Seed of the weights and of all that is sampled.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: Called after every epoch.
        checkpoint: File to save to every few seconds; if it exists, training resumes from it.
        group: The processes that train the model; each of them calls this.
        check_memory: Refuse what will not fit in memory before anything large is allocated.
        calibrated: Fit the inverse temperature of the probabilities; accuracies do not change.
    """
    return fit_many(
        dataset,
        config,
        [Run(train_on, validate_on, watch, int(seed), class_weights)],
        device,
        progress=progress,
        checkpoint=checkpoint,
        group=group,
        check_memory=check_memory,
        calibrated=calibrated,
    )[0]


def fit_many(
    dataset: Dataset,
    config: Config,
    runs: Sequence[Run],
    device: str = "auto",
    *,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    group: ProcessGroup | None = None,
    check_memory: bool = True,
    calibrated: bool = True,
) -> list[Fitted]:
    """Train many runs at once, which must be of one group of :func:`group_runs`.

    Each does what :func:`fit` would do alone; only what is sampled while training differs, with
    the same distribution. Runs of one seed on one graph are pretrained once, since pretraining
    reads neither labels nor splits. The other arguments are those of :func:`fit`.
    """
    group, training = group or ProcessGroup(), config.training
    where = pick_device(device if group.alone else own_device(device))
    card = ModelCard.of(dataset, config)
    if check_memory and len(runs) == 1:
        require_memory(dataset, card, where)
    source = in_batches(card.prepare(dataset), where, card.config)
    if isinstance(source, GraphBatch) and not group.alone:
        raise InputError(
            f"{dataset.name}: one graph that is taken at once cannot be shared between "
            f"{group.size} processes; divide it into clusters with --batch-nodes"
        )
    size, capture = training.batch_size, training.likelihood not in INEXACT
    share = len({run.seed for run in runs}) == 1 < len(runs) and isinstance(source, GraphBatch)
    tried, starts = [dict[str, Fitted]() for _ in runs], list[Pretrained]()
    wanted = [_candidates(dataset, config, run) for run in runs]
    for name, own in functools.reduce(operator.or_, wanted).items():
        cards = [replace(card, config=card.config.replace(**own), seed=run.seed) for run in runs]
        models = []
        with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
            for one in cards:
                torch.manual_seed(one.seed)
                models.append(one.build().to(where))
        if share and not starts:
            unlabelled = Run(NONE, NONE, seed=runs[0].seed)
            alone = OneRun(models[0], source, unlabelled, scores=scores, capture=capture)
            starts = train(TrainingState.start(alone, training), training).pretrained * len(runs)
        for model, start in zip(models, starts, strict=bool(starts)):
            model.load_state_dict(start.weights, strict=False)
            model.train()
        executor: OneRun | ManyRuns
        if len(runs) > 1:
            assert not isinstance(source, LargeGraph)
            executor = ManyRuns(models, source, runs, size)
        else:
            options: Any = {"batch_size": size, "group": group, "capture": capture}
            executor = OneRun(models[0], source, runs[0], scores=scores, **options)
        named = name if tried[0] else ""
        courses, starts = _train(executor, cards[0], starts, named, progress, checkpoint)
        for i, (model, course) in enumerate(zip(models, courses, strict=True)):
            if name in wanted[i]:
                tried[i][name] = Fitted(model, cards[i], source, course.history, course.best_epoch)
    return [_best(own, run, calibrated) for own, run in zip(tried, runs, strict=True)]


def _candidates(dataset: Dataset, config: Config, run: Run) -> dict[str, dict[str, Any]]:
    """Changes of the settings that a run chooses from; one unless validation labels can decide."""
    partition, conv = config.model.partition, config.model.conv
    if partition != "auto" or not run.train_on.numel() or not run.validate_on.numel():
        return {"learned" if partition == "auto" else partition: {}}
    known, labels = torch.cat([run.train_on, run.validate_on]).cpu(), dataset.labels
    y = torch.full_like(labels, -1).index_copy_(0, known, labels[known])
    mixed = dataset.single_graph and homophily(y, dataset.graphs[0].edge_index) < HOMOPHILOUS
    return {name: own for name, own in TRIED.items() if name != "sage" or (mixed and conv == "gcn")}


def _best(tried: Mapping[str, Fitted], run: Run, calibrated: bool) -> Fitted:
    """The model that validates best, the first of equals; calibrated and checked if asked for."""
    scored = {
        name: (one.best.get("val_accuracy", 0.0), -one.best.get("val_loss", 0.0))
        for name, one in tried.items()
    }
    ranked = sorted(scored, key=lambda name: scored[name], reverse=True)
    best, *others = (tried[name] for name in ranked)
    if others:
        wasted = [row for one in others for row in one.finetuned]
        spent = len(wasted), sum(row["seconds"] for row in wasted)
        best = replace(best, tried={name: scored[name][0] for name in ranked}, spent=spent)
    if not calibrated:
        return best
    card, (learned, val, *_) = best.card, run
    if learned.numel():
        calibrate(best.model, best.source, val, card.config.training.num_samples, card.seed)
    return replace(best, warnings=tuple(signs_of_failure(best, learned, val)))


def _train(
    executor: OneRun | ManyRuns,
    card: ModelCard,
    starts: list[Pretrained],
    name: str,
    progress: Progress | None,
    checkpoint: Path | None,
) -> tuple[list[Course], list[Pretrained]]:
    """Train, from the checkpoint if there is one, and save to it; also returns the pretraining.

    A model that starts from the pretraining of another has a name.
    """
    config, group, fingerprint = card.config.training, executor.group, dict[str, Any]()
    state = TrainingState.start(executor, config)
    if name and checkpoint is not None:
        checkpoint = checkpoint.with_stem(f"{checkpoint.stem}-{name}")
    if checkpoint is not None and isinstance(executor, OneRun):
        fingerprint = fingerprint_of(card, executor)
    # The first process has prepared the folder; what it finds there counts for all.
    if checkpoint is not None and group.from_first(checkpoint.exists):
        load_state(checkpoint, state, fingerprint)
    elif starts and state.phase == "pretrain":
        for course, start in zip(state.courses, starts, strict=True):
            course.history += start.history
        state.enter("finetune")
    here = (state.phase, state.courses[0].epoch)
    if here != group.from_first(lambda: here):
        raise InputError(
            f"{checkpoint}: process {group.rank} reads another state than the first; keep "
            "the run folder where all machines see it"
        )
    last = -math.inf

    # Saved only between epochs: an interrupt may come in the middle of a step, and what that
    # leaves behind is not a state to resume from.
    def save_if_due(state: TrainingState, seconds: float = SECONDS_BETWEEN_SAVES) -> None:
        nonlocal last
        due = time.monotonic() - last >= seconds
        if checkpoint is not None and group.leads and due:
            save_state(checkpoint, state, fingerprint)
            last = time.monotonic()

    named = progress and (lambda phase, *rest: progress(f"{phase} ({name})", *rest))
    tell = named if name else progress
    unfinished = state.phase != PHASES[-1]
    try:
        train(state, config, progress=tell, on_epoch=save_if_due)
    except DivergedError as error:
        if checkpoint is None or not checkpoint.exists():
            raise
        raise DivergedError(f"{error}; the last good state is kept in {checkpoint}") from None
    if unfinished:
        # Whatever stops the work that follows, nothing is trained again.
        save_if_due(state, 0.0)
    # Clusters of a large graph remember what was pretrained, and each training has its own.
    by_clusters = isinstance(executor, OneRun) and executor.clusters is not None
    return state.courses, [] if by_clusters else state.pretrained or starts
