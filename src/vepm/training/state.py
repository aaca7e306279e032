"""What training carries from epoch to epoch."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vepm.scale.executor import Executor, Row
from vepm.scale.optimizing import capturable_adam
from vepm.training.config import TrainingConfig
from vepm.training.losses import Held

PHASES = ("pretrain", "finetune", "done")
PRETRAIN_LEARNING_RATE = 0.01
PRETRAIN_PATIENCE = 100
"""Pretraining has converged after this many epochs without improvement."""
PRETRAIN_TOLERANCE = 1e-4
"""The least improvement of the pretraining loss that counts, relative to it."""

Progress = Callable[[str, int, int, Row], None]
"""Called after every epoch with the phase, the epoch, the maximum of epochs and the history row."""


@dataclass
class Course:
    """How far a run has come: its history, when it stops and which epoch it keeps."""

    phase: str = "pretrain"
    epoch: int = 0
    """Epochs completed in this phase."""
    history: list[Row] = field(default_factory=list)
    converging: float = math.inf
    """Best smoothed loss of pretraining."""
    smoothed: float = math.inf
    stale: int = 0
    """Epochs since the phase last improved."""
    best_epoch: int = -1
    best_score: tuple[float, float] = (-math.inf, -math.inf)
    """Validation accuracy and minus validation loss of the best epoch."""
    improved: bool = False
    """Whether the last epoch of finetuning was the best so far on validation."""

    def enter(self, phase: str) -> None:
        """Begin the next phase."""
        self.phase, self.epoch, self.stale = phase, 0, 0

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
        if first or self.smoothed < self.converging - margin:
            self.converging, self.stale = self.smoothed, 0
        else:
            self.stale += 1

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

    executor: Executor
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
    def start(cls, executor: Executor, config: TrainingConfig) -> "TrainingState":
        """A fresh state of all runs of an executor."""
        predictor = executor.predictor_parameters()
        state = cls(
            executor,
            [Course() for _ in executor.seeds],
            capturable_adam(predictor, config.weight_decay, executor.undecayed_parameters()),
            capturable_adam(executor.encoder_parameters()),
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
            course.enter(phase)
        self.encoder_optimizer.state.clear()
