"""From a dataset and settings to a trained model: the one call behind every user of training."""

import copy
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

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
from vepm.training.config import TRIED, Config
from vepm.training.legacy import INEXACT
from vepm.training.loop import train
from vepm.training.prediction import calibrate, scores
from vepm.training.sources import in_batches, pick_device, require_memory
from vepm.training.state import PHASES, Course, Fitted, Progress, TrainingState

SECONDS_BETWEEN_SAVES = 10.0
NONE = torch.empty(0, dtype=torch.long)


class Pretrained(NamedTuple):
    """Where finetuning begins: what pretraining learned, which uses neither bank nor composer."""

    weights: dict[str, Any]
    history: list[Row]

    @classmethod
    def of(cls, model: VEPM, course: Course) -> Self:
        """What a pretrained model has now."""
        weights = copy.deepcopy(model.state_dict())
        learned = {k: v for k, v in weights.items() if k.split(".")[0] not in ("bank", "composer")}
        return cls(learned, list(course.history))


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
    source = in_batches(dataset, where, card.config)
    _require_shareable(source, group, dataset.name)
    tried, start = dict[str, Fitted](), None
    for name, own in _candidates(card, config, [run]).items():
        model = new_model(own, where)
        executor = _one_run(model, source, run, own, group)
        state = TrainingState.start(executor, config.training)
        saved, told = checkpoint, progress
        if tried:
            saved = checkpoint and checkpoint.with_stem(f"{checkpoint.stem}-{name}")
            told = progress and _named(progress, name)
        start = _train_saving(state, executor, own, told, saved, start)
        course = state.courses[0]
        tried[name] = Fitted(model, own, source, course.history, course.best_epoch)
    return _best(tried, run, calibrated)


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
    source = in_batches(dataset, where, measured.config)
    assert not isinstance(source, LargeGraph)
    seeds = [run.seed for run in runs]
    tried, starts = [dict[str, Fitted]() for _ in runs], list[Pretrained]()
    for name, own in _candidates(measured, config, runs).items():
        cards = [replace(own, seed=int(seed)) for seed in seeds]
        models = [new_model(card, where) for card in cards]
        if not starts and len(set(seeds)) == 1 and isinstance(source, GraphBatch):
            starts = [_pretrain_once(models[0], source, cards[0])] * len(runs)
        for model, start in zip(models, starts, strict=bool(starts)):
            model.load_state_dict(start.weights, strict=False)
            model.train()
        executor = ManyRuns(models, source, runs, config.training.batch_size)
        state = TrainingState.start(executor, config.training)
        if starts:
            _skip_pretraining(state, *starts)
        train(state, config.training, until="finetune")
        courses = state.courses
        starts = starts or [Pretrained.of(*pair) for pair in zip(models, courses, strict=True)]
        train(state, config.training)
        for done, model, card, course in zip(tried, models, cards, courses, strict=True):
            done[name] = Fitted(model, card, source, course.history, course.best_epoch)
    return [_best(own, run, calibrated) for own, run in zip(tried, runs, strict=True)]


def _candidates(card: ModelCard, config: Config, runs: Sequence[Run]) -> dict[str, ModelCard]:
    """The cards of the models to choose from: of one, unless validation labels are to decide."""
    decides = any(run.train_on.numel() and run.validate_on.numel() for run in runs)
    if config.model.partition != "auto" or not decides:
        return {config.model.partition: card}
    found = {name: card.config.replace(**own) for name, own in TRIED.items()}
    if found["linear"] == found["learned"]:
        del found["linear"]
    return {name: replace(card, config=own) for name, own in found.items()}


def _best(tried: Mapping[str, Fitted], run: Run, calibrated: bool) -> Fitted:
    """The model that validates best, the first of equals; perhaps calibrated and checked."""
    ranked = sorted(tried, key=lambda name: tried[name].score, reverse=True)
    best, *others = (tried[name] for name in ranked)
    if others:
        wasted = [row for one in others for row in one.finetuned]
        spent = len(wasted), sum(row["seconds"] for row in wasted)
        found = {name: tried[name].score[0] for name in ranked}
        best = replace(best, tried=found, spent=spent)
    if not calibrated:
        return best
    card, (learned, val, *_) = best.card, run
    if learned.numel():
        calibrate(best.model, best.source, val, card.config.training.num_samples, card.seed)
    return replace(best, warnings=tuple(signs_of_failure(best, learned, val)))


def _require_shareable(source: Source, group: ProcessGroup, name: str) -> None:
    """Refuse several processes for what cannot be divided between them."""
    if isinstance(source, GraphBatch) and not group.alone:
        raise InputError(
            f"{name}: one graph that is taken at once cannot be shared between {group.size} "
            "processes; divide it into clusters with --batch-nodes"
        )


def _named(progress: Progress, name: str) -> Progress:
    """Progress that says what is tried beside the phase."""
    return lambda phase, *rest: progress(f"{phase} ({name})", *rest)


def _one_run(
    model: VEPM,
    source: Source,
    run: Run,
    card: ModelCard,
    group: ProcessGroup | None = None,
) -> OneRun:
    config, group, clusters = card.config, group or ProcessGroup(), None
    if isinstance(source, LargeGraph):
        sizes = config.model.num_communities, config.training.batch_size
        clusters = Clusters(source, run.train_on, *sizes, group=group, seed=card.seed)
    return OneRun(
        model,
        source,
        run,
        scores=scores,
        batch_size=config.training.batch_size,
        group=group,
        capture=config.training.likelihood not in INEXACT,
        clusters=clusters,
    )


def _pretrain_once(model: VEPM, source: GraphBatch, card: ModelCard) -> Pretrained:
    """Pretrain for models that differ in nothing that pretraining reads."""
    config = card.config.training
    executor = _one_run(model, source, Run(NONE, NONE, seed=card.seed), card)
    state = TrainingState.start(executor, config)
    train(state, config, until="finetune")
    return Pretrained.of(model, state.courses[0])


def _skip_pretraining(state: TrainingState, *starts: Pretrained) -> None:
    """Let runs go on from where others were pretrained, if they have a pretraining."""
    if state.phase == "pretrain":
        for course, start in zip(state.courses, starts, strict=True):
            course.history += start.history
        state.enter("finetune")


def _train_saving(
    state: TrainingState,
    executor: OneRun,
    card: ModelCard,
    progress: Progress | None,
    checkpoint: Path | None,
    start: Pretrained | None,
) -> Pretrained | None:
    """Train from the checkpoint, if there is one, and save to it; gives what was pretrained."""
    config, group = card.config.training, executor.group
    fingerprint = {} if checkpoint is None else fingerprint_of(card, executor)
    # The first process has prepared the folder; what it finds there counts for all.
    if checkpoint is not None and group.from_first(checkpoint.exists):
        load_state(checkpoint, state, fingerprint)
    elif start is not None:
        executor.model.load_state_dict(start.weights, strict=False)
        _skip_pretraining(state, start)
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
        due = time.monotonic() - last >= SECONDS_BETWEEN_SAVES
        if checkpoint is not None and group.leads and due:
            save_state(checkpoint, state, fingerprint)
            last = time.monotonic()

    unfinished = state.phase != PHASES[-1]
    how: Any = {"progress": progress, "on_epoch": save_now_and_then}
    try:
        if state.phase == "pretrain":
            train(state, config, until="finetune", **how)
            start = Pretrained.of(executor.model, state.courses[0])
        train(state, config, **how)
    except DivergedError as error:
        if checkpoint is None or not checkpoint.exists():
            raise
        raise DivergedError(f"{error}; the last good state is kept in {checkpoint}") from None
    if checkpoint is not None and group.leads and unfinished:
        # Whatever stops the work that follows, nothing is trained again.
        save_state(checkpoint, state, fingerprint)
    # Clusters of a large graph remember what was pretrained, and each training has its own.
    return start if executor.clusters is None else None
