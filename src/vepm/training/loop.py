"""The training loop: pretrain on the edges, finetune on the labels, keep the best epoch.

It trains R >= 1 runs that are in the same phase. Each run has its own course: its history, when it
stops and which epoch it keeps. How steps are carried out is up to the executor.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vepm.nn import VEPM
from vepm.objective import Terms
from vepm.scale.batches import GraphBatch
from vepm.scale.executor import seed_of, set_rate
from vepm.training.config import TrainingConfig
from vepm.training.losses import Held, bound_loss, hold, predictor_loss, pretraining_loss
from vepm.training.state import PHASES, PRETRAIN_LEARNING_RATE, Progress, Tally, TrainingState


def train(
    state: TrainingState,
    config: TrainingConfig,
    *,
    progress: Progress | None = None,
    on_epoch: Callable[[TrainingState], None] | None = None,
    until: str = PHASES[-1],
) -> TrainingState:
    """Run the phases before ``until``, then restore the weights of each run's best epoch.

    Every epoch draws its random numbers from the seeds, its phase and its index alone, so a run
    resumed from the state after any epoch equals one that was never interrupted. The state is
    changed in place, and handed to ``on_epoch`` after every epoch, to be saved.
    """
    executor = state.executor
    devices = [executor.device] if executor.device.type == "cuda" else []
    labelled = any(run.train_on.numel() for run in executor.runs)
    with torch.random.fork_rng(devices=devices):
        for phase, epochs in (
            ("pretrain", config.pretrain_epochs),
            ("finetune", config.epochs if labelled else 0),
        ):
            if state.phase == phase != until:
                executor.begin(phase, epochs)
                while active := state.active(epochs, config):
                    _run_epoch(state, active, epochs, config, progress)
                    if on_epoch is not None:
                        on_epoch(state)
                if phase == "pretrain":
                    executor.restore()
                state.enter(PHASES[PHASES.index(phase) + 1])
    executor.restore()
    return state


def _run_epoch(
    state: TrainingState,
    active: Sequence[int],
    epochs: int,
    config: TrainingConfig,
    progress: Progress | None,
) -> None:
    """One epoch of all runs; only the active ones take note of it."""
    started = time.perf_counter()
    course = state.courses[active[0]]
    phase, epoch = course.phase, course.epoch
    tally = Tally()
    if phase == "pretrain":
        slow = config.scheme == "unlabelled"
        rate = config.encoder_learning_rate if slow else PRETRAIN_LEARNING_RATE
        set_rate(state.encoder_optimizer, rate)
        for batch in state.executor.batches("pretrain", epoch)[1]:
            tally.add(_step("pretrain", state, batch, config))
        rows = tally.rows(state, active)
    else:
        rate = schedule_factor(config.schedule, epoch, config.epochs) * config.learning_rate
        _finetune(state, tally, epoch, config)
        watched = state.executor.watch()
        rows = tally.rows(state, active)
        rows = [row | found for row, found in zip(rows, watched(), strict=True)]
    seconds = (time.perf_counter() - started) / len(active)
    head = {"phase": phase, "epoch": epoch}
    for run in active:
        row = head | rows[run] | {"learning_rate": rate, "seconds": seconds}
        state.courses[run].note(row)
        if progress is not None:
            progress(phase, epoch + 1, epochs, row)
    # Weights that later steps must not change: best epochs, and runs that stopped.
    if phase == "finetune":
        state.executor.keep([run for run in active if state.courses[run].improved])
    elif state.active(epochs, config):
        state.executor.keep([run for run in active if state.courses[run].stopped(config)])


def _finetune(state: TrainingState, tally: Tally, epoch: int, config: TrainingConfig) -> None:
    # In place: a captured step reads it from there.
    state.consistency_weight.fill_(consistency_weight(config, epoch))
    factor = schedule_factor(config.schedule, epoch, config.epochs)
    set_rate(state.predictor_optimizer, factor * config.learning_rate)
    set_rate(state.encoder_optimizer, factor * config.encoder_learning_rate)
    held = _held_for_cycle(state, epoch, config)
    count, batches = state.executor.batches("finetune", epoch)
    for i, batch in enumerate(batches):
        step = epoch * count + i
        for kind in scheme_steps(config.scheme, config.encoder_interval, step):
            terms = _step(kind, state, batch, config, held)
        tally.add(terms, batch.labels)


def _step(
    kind: str, state: TrainingState, batch: Any, config: TrainingConfig, held: Held | None = None
) -> Terms:
    """Step down the loss of a kind of step with the parameters that it updates."""
    weight = state.consistency_weight
    class_weights = state.executor.runs[0].class_weights

    def loss(model: VEPM, batch: GraphBatch, rows: Tensor, *given: Held) -> Terms:
        if kind == "pretrain":
            return pretraining_loss(model, batch, config)
        if kind == "predictor":
            own = given[0] if given else hold(model, batch, config)
            return predictor_loss(model, batch, rows, own, config, weight, class_weights)
        return bound_loss(model, batch, rows, config, weight, class_weights)

    encoder, predictor = state.encoder_optimizer, state.predictor_optimizer
    moving = {"predictor": [predictor], "both": [encoder, predictor]}.get(kind, [encoder])
    given = (held,) if kind == "predictor" and held is not None else ()
    return state.executor.step(kind, loss, batch, moving, *given)


def _held_for_cycle(state: TrainingState, epoch: int, config: TrainingConfig) -> Held | None:
    """Affiliations of the one graph, the same until the encoder steps again."""
    if config.scheme in ("joint", "scratch"):
        return None
    cycle = epoch // config.encoder_interval
    if state.held is None or state.held[0] != cycle:
        torch.manual_seed(seed_of(*state.executor.seeds, "hold", cycle))
        state.held = cycle, state.executor.hold(lambda m, batch: hold(m, batch, config))
    return state.held[1]


def scheme_steps(scheme: str, interval: int, step: int) -> tuple[str, ...]:
    """Which parameters a step of finetuning updates: the predictor's, the encoder's or both.

    Example:
        >>> [scheme_steps("alternating", 2, step) for step in range(2)]
        [('predictor',), ('predictor', 'encoder')]
    """
    if scheme == "predictor":
        return ("predictor",)
    if scheme in ("joint", "scratch"):
        return ("both",)
    return ("predictor", "encoder") if (step + 1) % interval == 0 else ("predictor",)


def schedule_factor(schedule: str, epoch: int, epochs: int) -> float:
    """Learning rate of an epoch relative to the first.

    Example:
        >>> [schedule_factor("halving", epoch, 300) for epoch in (0, 49, 50, 100)]
        [1.0, 1.0, 0.5, 0.25]
    """
    if schedule == "cosine":
        return (1 + math.cos(math.pi * epoch / epochs)) / 2
    return float(0.5 ** (epoch // 50)) if schedule == "halving" else 1.0


def consistency_weight(config: TrainingConfig, epoch: int) -> float:
    """Weight of the disagreement of noisy passes in an epoch of finetuning.

    It grows slowly: before the labels have been learned, the easiest way to agree is to predict
    one class for all.

    Example:
        >>> config = TrainingConfig(consistency_weight=2.0, consistency_warmup=4)
        >>> [consistency_weight(config, epoch) for epoch in (0, 2, 4, 99)]
        [0.0, 1.0, 2.0, 2.0]
    """
    warm = epoch >= config.consistency_warmup
    return config.consistency_weight * (1.0 if warm else epoch / config.consistency_warmup)
