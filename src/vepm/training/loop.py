"""The training loop: pretrain on the edges, finetune on the labels, keep the best epoch."""

import copy
import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, stack

from vepm.errors import DivergedError
from vepm.kernels.shares import SMALLEST_SHARE
from vepm.nn import draw, exclusive_groups, interactions
from vepm.objective import Terms
from vepm.scale.batches import GraphStore
from vepm.scale.chunks import affiliations, posterior_table
from vepm.scale.executor import Loss, OneRun, Row, capturable_adam, set_rate
from vepm.scale.large import LargeGraph
from vepm.scale.many import ManyRuns
from vepm.training.config import TrainingConfig
from vepm.training.losses import Held, bound_loss, hold, predictor_loss, pretraining_loss

PHASES = ("pretrain", "finetune", "done")
PRETRAIN_LEARNING_RATE = 0.01
PRETRAIN_PATIENCE = 100  # pretraining has converged after this many epochs without improvement
PRETRAIN_TOLERANCE = 1e-4  # least improvement of the pretraining loss that counts, relative to it
# Epochs over which the weight of the disagreement grows: before the labels have been learned, the
# easiest way to agree is to predict one class for all.
CONSISTENCY_WARMUP = 50
FOUND_LOGIT = 3.0  # of a group that was found; with 1, as for segments, labels would scatter it

Progress = Callable[[str, int, int, Row], None]
"""Called after every epoch with the phase, the epoch, the maximum of epochs and the history row."""


@dataclass
class Course:
    """How far a run has come: its history, when it stops and which epoch it keeps."""

    phase: str = "pretrain"
    epoch: int = 0  # epochs completed in this phase
    history: list[Row] = field(default_factory=list)
    converging: float = math.inf  # best smoothed loss of pretraining
    smoothed: float = math.inf
    stale: int = 0  # epochs since the phase last improved
    best_epoch: int = -1
    best_score: tuple[float, float] = (-math.inf, -math.inf)  # its accuracy and minus its loss

    def stopped(self, config: TrainingConfig) -> bool:
        """Whether the phase has not improved for too long."""
        patience = PRETRAIN_PATIENCE if self.phase == "pretrain" else config.patience
        return patience > 0 and self.stale >= patience

    def note(self, row: Row) -> bool:
        """Record an epoch; returns whether it is one of finetuning that validates best so far."""
        better = False
        self.stale += 1
        if self.phase == "pretrain":
            # Affiliations are sampled anew in every epoch, so the loss is smoothed.
            first = math.isinf(self.smoothed)
            self.smoothed = row["loss"] if first else 0.9 * self.smoothed + 0.1 * row["loss"]
            margin = PRETRAIN_TOLERANCE * abs(self.converging)
            if first or self.smoothed < self.converging - margin:
                self.converging, self.stale = self.smoothed, 0
        elif "val_accuracy" not in row:
            # Without validation the last epoch counts.
            self.best_epoch, self.stale = self.epoch, 0
        else:
            score = (row["val_accuracy"], -row["val_loss"])
            better = score > self.best_score
            if better:
                self.best_score, self.best_epoch, self.stale = score, self.epoch, 0
        self.history.append(row)
        self.epoch += 1
        return better


class Pretrained(NamedTuple):
    """Where finetuning begins: weights from pretraining, which uses neither bank nor composer."""

    weights: dict[str, Tensor]
    history: list[Row]


@dataclass
class TrainingState:
    """Everything needed, beside the data, to continue as if never interrupted."""

    executor: OneRun | ManyRuns  # has the weights and carries out the steps
    courses: list[Course]  # how far each run has come; all are in the same phase
    predictor_optimizer: torch.optim.Adam
    encoder_optimizer: torch.optim.Adam
    consistency_weight: Tensor  # of the present epoch
    held: tuple[int, Held | None] | None = None
    """Affiliations of the one graph, the same until the encoder steps again, and the cycle they
    were sampled for; a resumed run samples the same again."""
    pretrained: list[Pretrained] = field(default_factory=list)  # of each run, if done just now

    @classmethod
    def start(cls, executor: OneRun | ManyRuns, config: TrainingConfig) -> "TrainingState":
        """A fresh state of all runs of an executor."""
        predictor = executor.parameters("predictor")
        decay = config.weight_decay if config.scheme == "unlabelled" else 0.0
        pretrains = config.scheme != "scratch" and config.pretrain_epochs > 0
        return cls(
            executor,
            [Course(PHASES[0] if pretrains else PHASES[1]) for _ in executor.runs],
            capturable_adam(predictor, config.weight_decay, executor.parameters("undecayed")),
            capturable_adam(executor.parameters("encoder"), decay),
            predictor[0].new_zeros(()),
        )

    @property
    def phase(self) -> str:
        """The phase that all runs are in."""
        return self.courses[0].phase

    def active(self, epochs: int, config: TrainingConfig) -> list[int]:
        """Indices of the runs that have not finished the phase."""
        runs = enumerate(self.courses)
        return [run for run, own in runs if own.epoch < epochs and not own.stopped(config)]

    def enter(self, phase: str) -> None:
        """Begin the next phase; the encoder's optimizer forgets its momentum."""
        for course in self.courses:
            course.phase, course.epoch, course.stale = phase, 0, 0
        self.encoder_optimizer.state.clear()


def train(
    state: TrainingState,
    config: TrainingConfig,
    *,
    progress: Progress | None = None,
    on_epoch: Callable[[TrainingState], None] | None = None,
) -> TrainingState:
    """Run the phases that are left, then restore the weights of each run's best epoch.

    All runs are in the same phase; each stops and chooses its epoch on its own. Every epoch draws
    its random numbers from the seeds, its phase and its index alone, so a run resumed from the
    state after any epoch equals one that was never interrupted. The state is changed in place, and
    handed to ``on_epoch`` after every epoch, to be saved.
    """
    executor = state.executor
    devices = [executor.device] if executor.device.type == "cuda" else []
    labelled = any(run.train_on.numel() for run in executor.runs)
    most = {"pretrain": config.pretrain_epochs, "finetune": config.epochs if labelled else 0}
    with torch.random.fork_rng(devices=devices):
        for phase, epochs in most.items():
            if state.phase != phase:
                continue
            executor.begin(phase, epochs)
            first = state.courses[0]
            if phase == "finetune" and epochs and first.history and first.epoch == 0:
                _regroup(executor)
            while active := state.active(epochs, config):
                _run_epoch(state, active, epochs, config, progress)
                if on_epoch is not None:
                    on_epoch(state)
            if phase == "pretrain":
                executor.restore()
                for model, course in zip(executor.models, state.courses, strict=True):
                    own = copy.deepcopy(model.state_dict())
                    own = {k: v for k, v in own.items() if not k.startswith(("bank.", "composer."))}
                    state.pretrained.append(Pretrained(own, list(course.history)))
            state.enter(PHASES[PHASES.index(phase) + 1])
    executor.restore()
    return state


@torch.no_grad()
def _regroup(executor: OneRun | ManyRuns) -> None:
    """Start communities that clearly exclude each other after pretraining in one metacommunity."""
    source, box = executor.source, executor.model.partitioner
    if box.assignment_logit is None or box.directed or isinstance(source, GraphStore):
        return
    stacked = executor.parameters("undecayed")[0]
    last = stacked.size(-1) - 1 - bool(box.num_background)
    for logits, model in zip(stacked.view(-1, *stacked.shape[-2:]), executor.models, strict=True):
        model.eval()
        if isinstance(source, LargeGraph):
            z = affiliations(model, posterior_table(model, source), sample=False).to(stacked.device)
        else:
            z = draw(model.encode(source.x, source.edges), sample=False)
        links = interactions(z, model.interactions, z.size(1)).sum(0)
        used = (links >= SMALLEST_SHARE * links.sum()).nonzero().flatten()
        # Rounding may differ between processes, and all must begin with the same groups.
        groups = executor.group.from_first(functools.partial(exclusive_groups, z[:, used]))
        for part, group in enumerate(groups):
            logits[used[group]] = 0.0
            logits[used[group], min(part, last)] = FOUND_LOGIT


def _run_epoch(
    state: TrainingState,
    active: Sequence[int],
    epochs: int,
    config: TrainingConfig,
    progress: Progress | None,
) -> None:
    """One epoch of all runs; only the active ones record it."""
    started = time.perf_counter()
    executor, course = state.executor, state.courses[active[0]]
    phase, epoch = course.phase, course.epoch
    rate = _set_rates(state, phase, epoch, config)
    cycle = epoch // config.encoder_interval
    if phase == "pretrain" or config.scheme in ("joint", "scratch"):
        state.held = None
    elif state.held is None or state.held[0] != cycle:
        state.held = cycle, executor.hold(lambda m, batch, _: hold(m, batch, config), cycle)
    count, batches = executor.batches(phase, epoch)
    steps, labels = list[Terms](), list[Sequence[int]]()
    for i, batch in enumerate(batches):
        kinds = scheme_steps(config.scheme, config.encoder_interval, epoch * count + i)
        for kind in ("pretrain",) if phase == "pretrain" else kinds:
            terms = _step(kind, state, batch, config)
        steps.append(terms)
        labels.append(batch.labels)
    rows = _history_rows(state, active, steps, labels)
    seconds = (time.perf_counter() - started) / len(active)
    best = []
    for run in active:
        row = {"phase": phase, "epoch": epoch, **rows[run]}
        row |= {"learning_rate": rate, "seconds": seconds}
        if state.courses[run].note(row):
            best.append(run)
        if progress is not None:
            progress(phase, epoch + 1, epochs, row)
    # Weights that later steps must not change: best epochs, and runs that stopped.
    if phase == "finetune":
        executor.keep(best)
    elif state.active(epochs, config):
        executor.keep([run for run in active if state.courses[run].stopped(config)])


def _set_rates(state: TrainingState, phase: str, epoch: int, config: TrainingConfig) -> float:
    """Set what changes from epoch to epoch; returns the learning rate that history records."""
    if phase == "pretrain":
        slow = config.scheme == "unlabelled"
        rate = config.encoder_learning_rate if slow else PRETRAIN_LEARNING_RATE
        set_rate(state.encoder_optimizer, rate)
        return rate
    # In place: a captured step reads it from there.
    warmed = min(epoch / CONSISTENCY_WARMUP, 1.0)
    state.consistency_weight.fill_(config.consistency_weight * warmed)
    factor = 0.5 ** (epoch // 50) if config.schedule == "halving" else 1.0
    if config.schedule == "cosine":
        factor = (1 + math.cos(math.pi * epoch / config.epochs)) / 2
    set_rate(state.predictor_optimizer, factor * config.learning_rate)
    set_rate(state.encoder_optimizer, factor * config.encoder_learning_rate)
    return factor * config.learning_rate


def _step(kind: str, state: TrainingState, batch: Any, config: TrainingConfig) -> Terms:
    """Minimise the loss of a kind of step by one step of the parameters that it updates."""
    weights = state.consistency_weight, state.executor.runs[0].class_weights
    losses: dict[str, Loss] = {
        "pretrain": lambda m, b, _: pretraining_loss(m, b, config),
        "predictor": lambda m, b, rows, held=None: predictor_loss(
            m, b, rows, held or hold(m, b, config), config, *weights
        ),
    }
    loss = losses.get(kind, lambda m, b, rows: bound_loss(m, b, rows, config, *weights))
    encoder, predictor = state.encoder_optimizer, state.predictor_optimizer
    moving = {"predictor": [predictor], "both": [encoder, predictor]}.get(kind, [encoder])
    held = state.held[1] if state.held and kind == "predictor" else None
    given = () if held is None else (held,)
    return state.executor.step(kind, loss, batch, moving, *given)


def _history_rows(
    state: TrainingState,
    active: Sequence[int],
    steps: Sequence[Terms],
    labels: Sequence[Sequence[int]],
) -> list[Row]:
    """An epoch's entries in the history of every run: means over the steps that had a term."""
    executor = state.executor
    watched = executor.watch() if state.phase == "finetune" else {}
    columns = zip(Terms._fields, zip(*steps, strict=True), strict=True)
    given = {name: [v for v in column if v is not None] for name, column in columns}
    means = {name: stack(values).double().mean(0) for name, values in given.items() if values}
    weights = executor.weight_sums().double()
    labelled = weights.new_tensor([sum(counts) for counts in zip(*labels, strict=True)])
    found = means | {"weights": weights, "labels": labelled} | watched
    # Left on the device until here: one transfer for all.
    table = stack([value.reshape(len(executor.runs)) for value in found.values()])
    rows = []
    for run, values in enumerate(executor.group.sum(table).T.tolist()):
        own = dict(zip(found, values, strict=True))
        if run in active and not all(math.isfinite(own[name]) for name in (*means, "weights")):
            # The loss comes first, but the term that made it so says more about the cause.
            terms = ((n, t) for step in steps for n, t in reversed(step._asdict().items()))
            last = ((name, float(t.reshape(-1)[run])) for name, t in terms if t is not None)
            odd = (f"{name} is {value}" for name, value in last if not math.isfinite(value))
            what = next(odd, "a gradient or running statistic is not finite")
            raise DivergedError(
                f"training diverged: {what} in epoch {state.courses[run].epoch} of {state.phase}; "
                "lower the learning rate or check the features' scale"
            )
        row = {name: own[name] for name in means}
        if "correct" in row:
            row["train_accuracy"] = row.pop("correct") * len(steps) / max(own["labels"], 1)
        roles = executor.runs[run].watched
        rows.append(row | {name: own[name] for name in watched if name.split("_")[0] in roles})
    return rows


def scheme_steps(scheme: str, interval: int, step: int) -> tuple[str, ...]:
    """Which parameters a step of finetuning updates: the predictor's, the encoder's or both."""
    if scheme == "predictor":
        return ("predictor",)
    if scheme in ("joint", "scratch"):
        return ("both",)
    return ("predictor", "encoder") if (step + 1) % interval == 0 else ("predictor",)
