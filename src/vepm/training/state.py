"""What training carries from epoch to epoch, what it notes of each, and what it leaves behind."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, stack

from vepm.errors import DivergedError
from vepm.nn import VEPM
from vepm.objective import Terms
from vepm.scale.executor import OneRun, Row, Source, capturable_adam
from vepm.scale.many import ManyRuns
from vepm.training.card import ModelCard
from vepm.training.config import TrainingConfig
from vepm.training.losses import Held

PHASES = ("pretrain", "finetune", "done")
PRETRAIN_LEARNING_RATE = 0.01
PRETRAIN_PATIENCE = 100  # pretraining has converged after this many epochs without improvement
PRETRAIN_TOLERANCE = 1e-4
"""The least improvement of the pretraining loss that counts, relative to it."""

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
    best_score: tuple[float, float] = (-math.inf, -math.inf)
    """Validation accuracy and minus validation loss of the best epoch."""
    improved: bool = False  # whether the last epoch of finetuning was the best so far on validation

    def stopped(self, config: TrainingConfig) -> bool:
        """Whether the phase has not improved for too long."""
        patience = PRETRAIN_PATIENCE if self.phase == "pretrain" else config.patience
        return patience > 0 and self.stale >= patience

    def note(self, row: Row) -> None:
        """Take note of an epoch."""
        if self.phase == "pretrain":
            self.watch_convergence(row["loss"])
        else:
            self.improved = self.judge(row)
        self.history.append(row)
        self.epoch += 1

    def watch_convergence(self, loss: float) -> None:
        """Take note of an epoch's pretraining loss."""
        # Affiliations are sampled anew in every epoch, so the loss is smoothed.
        first = math.isinf(self.smoothed)
        self.smoothed = loss if first else 0.9 * self.smoothed + 0.1 * loss
        margin = PRETRAIN_TOLERANCE * abs(self.converging)
        self.stale += 1
        if first or self.smoothed < self.converging - margin:
            self.converging, self.stale = self.smoothed, 0

    def judge(self, row: Row) -> bool:
        """Whether an epoch of finetuning is the best so far; without validation the last counts."""
        if "val_accuracy" not in row:
            self.best_epoch = self.epoch
            return False
        score = (row["val_accuracy"], -row["val_loss"])
        self.stale += 1
        better = score > self.best_score
        if better:
            self.best_score, self.best_epoch, self.stale = score, self.epoch, 0
        return better


@dataclass
class TrainingState:
    """All that is needed, beside the data, to continue as if never stopped."""

    executor: OneRun | ManyRuns
    """Has the weights and carries out the steps."""
    courses: list[Course]
    """How far each run has come; all are in the same phase."""
    predictor_optimizer: torch.optim.Adam
    encoder_optimizer: torch.optim.Adam
    consistency_weight: Tensor
    """Of the present epoch."""
    held: tuple[int, Held] | None = None
    """Affiliations and the cycle they were sampled for; a resumed run samples the same again."""

    @classmethod
    def start(cls, executor: OneRun | ManyRuns, config: TrainingConfig) -> "TrainingState":
        """A fresh state of all runs of an executor."""
        predictor = executor.parameters("predictor")
        decay = config.weight_decay if config.scheme == "unlabelled" else 0.0
        state = cls(
            executor,
            [Course() for _ in executor.seeds],
            capturable_adam(predictor, config.weight_decay, executor.parameters("undecayed")),
            capturable_adam(executor.parameters("encoder"), decay),
            predictor[0].new_zeros(()),
        )
        if config.scheme == "scratch" or config.pretrain_epochs == 0:
            state.enter("finetune")
        return state

    @property
    def phase(self) -> str:
        """The phase that all runs are in."""
        return self.courses[0].phase

    def active(self, epochs: int, config: TrainingConfig) -> list[int]:
        """Indices of the runs that have not finished the phase."""
        return [
            run
            for run, course in enumerate(self.courses)
            if course.epoch < epochs and not course.stopped(config)
        ]

    def enter(self, phase: str) -> None:
        """Begin the next phase, without the encoder's momentum of the last."""
        for course in self.courses:
            course.phase, course.epoch, course.stale = phase, 0, 0
        self.encoder_optimizer.state.clear()


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
    tried: dict[str, float] = field(default_factory=dict)
    """Validation accuracy of what was tried, by name; the first is this model's."""
    spent: tuple[int, float] = (0, 0.0)
    """Epochs and seconds of finetuning that went into those that were not kept."""

    @property
    def best(self) -> Row:
        """History row of the epoch whose weights were kept; empty without finetuning."""
        return self.finetuned[self.best_epoch] if self.finetuned else {}

    @property
    def finetuned(self) -> list[Row]:
        """History rows of finetuning."""
        return [row for row in self.history if row["phase"] == "finetune"]

    @property
    def score(self) -> tuple[float, float]:
        """Validation accuracy and minus validation loss of the best epoch; zeros if unknown."""
        return self.best.get("val_accuracy", 0.0), -self.best.get("val_loss", 0.0)


class Tally:
    """Collects the terms of an epoch's steps, left on the device until it has ended."""

    def __init__(self) -> None:
        self.steps: list[Terms] = []
        self.labels: list[Sequence[int]] = []

    def add(self, terms: Terms, labels: Sequence[int] = ()) -> None:
        """Count a step that saw so many labels of each run."""
        self.steps.append(terms.detached())
        self.labels.append(labels)

    def rows(self, state: TrainingState, active: Sequence[int]) -> list[Row]:
        """The epoch's entries in the history of every run: means over the steps that had a term.

        Raises:
            DivergedError: if a term or the weights of an active run are not finite.
        """
        runs = len(state.courses)
        columns = zip(Terms._fields, zip(*self.steps, strict=True), strict=True)
        given = {name: [v for v in column if v is not None] for name, column in columns}
        means = {name: stack(values).double().mean(0) for name, values in given.items() if values}
        labels = [sum(counts) for counts in zip(*self.labels, strict=True)] or [0] * runs
        means["labels"] = means["loss"].new_tensor(labels)
        means["weights"] = state.executor.weight_sums().double()
        values = stack([value.reshape(runs) for value in means.values()])
        sums = state.executor.group.sum(values).tolist()
        rows = [dict(zip(means, row, strict=True)) for row in zip(*sums, strict=True)]
        for run in active:
            self._check(rows[run], run, state.courses[run])
        for row in rows:
            seen = row.pop("labels")
            del row["weights"]
            if "correct" in row:
                row["train_accuracy"] = row.pop("correct") * len(self.steps) / max(seen, 1)
        return rows

    def _check(self, row: Row, run: int, course: Course) -> None:
        """Stop where values are no longer finite, and name the first that was not."""
        if all(map(math.isfinite, row.values())):
            return
        # The loss comes first, but the term that made it so says more about the cause.
        values = (
            (step, name, float(found.reshape(-1)[run]))
            for step, terms in enumerate(self.steps)
            for name, found in reversed(list(terms._asdict().items()))
            if found is not None
        )
        odd = (f"{name} is {v} in step {step}" for step, name, v in values if not math.isfinite(v))
        what = next(odd, "the sum of a term overflows in the steps")
        if all(math.isfinite(row[name]) for name in row if name != "weights"):
            what = "a gradient or running statistic is not finite in the last step"
        raise DivergedError(
            f"training diverged: {what} of epoch {course.epoch} of {course.phase}; "
            "lower the learning rate or check the features' scale"
        )
