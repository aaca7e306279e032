"""What training works on and what it carries from epoch to epoch."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vepm.nn import VEPM
from vepm.training.batches import GraphBatch, GraphStore
from vepm.training.config import TrainingConfig
from vepm.training.large import Clusters, LargeGraph
from vepm.training.losses import Held
from vepm.training.ranks import Team
from vepm.training.recording import Recorder, recordable_adam
from vepm.training.replicas import Replicas
from vepm.training.totals import RunningTotals

PHASES = ("pretrain", "finetune", "done")
PRETRAIN_LEARNING_RATE = 0.01
PRETRAIN_PATIENCE = 100
"""Pretraining has converged after this many epochs without improvement."""
PRETRAIN_TOLERANCE = 1e-4
"""The least improvement of the pretraining loss that counts, relative to it."""

Row = dict[str, Any]
Progress = Callable[[str, int, int, Row], None]
"""Called after every epoch with the phase, the epoch, the most epochs and the history row."""


@dataclass(frozen=True, eq=False)
class Examples:
    """What to learn from: graphs, and which nodes or graphs of them serve what."""

    source: GraphBatch | GraphStore | LargeGraph
    """One graph whose nodes are labelled, or a store of labelled graphs."""
    train: Tensor
    """Numbers of the labelled nodes or graphs to learn from; none to pretrain only."""
    val: Tensor
    """Numbers of those that choose the epoch; none to keep the last."""
    test: Tensor | None = None
    """Numbers of those to watch; they choose nothing."""
    clusters: Clusters | None = None
    """How a large graph is cut into batches; nothing for other sources."""


@dataclass(kw_only=True)
class Course:
    """How far a run has come, in numbers: what decides when it stops and which epoch it keeps."""

    phase: str = "pretrain"
    epoch: int = 0
    """Epochs completed in this phase."""
    history: list[Row] = field(default_factory=list)
    converging: float = math.inf
    """Best smoothed loss of pretraining."""
    smoothed: float = math.inf
    stale: int = 0
    """Epochs since the phase last got better."""
    best_epoch: int = -1
    best_score: tuple[float, float] = (-math.inf, -math.inf)
    """Validation accuracy and minus validation loss of the best epoch."""

    def enter(self, phase: str) -> None:
        """Begin the next phase."""
        self.phase, self.epoch, self.stale = phase, 0, 0

    def stopped(self, config: TrainingConfig) -> bool:
        """Whether patience with the phase has run out."""
        patience = PRETRAIN_PATIENCE if self.phase == "pretrain" else config.patience
        return patience > 0 and self.stale >= patience

    def watch_convergence(self, loss: float) -> None:
        """Take note of an epoch's pretraining loss."""
        # Affiliations are drawn anew in every epoch: the smoothed loss tells progress from luck.
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
class TrainingState(Course):
    """All that is needed, beside the data, to go on as if never stopped."""

    model: VEPM
    predictor_optimizer: torch.optim.Adam
    encoder_optimizer: torch.optim.Adam
    consistency_weight: Tensor
    """Of the epoch at hand."""
    best_weights: dict[str, Tensor] | None = None
    held: tuple[int, Held] | None = None
    """Affiliations of the cycle they were drawn for; a resumed run draws the same again."""
    team: Team = field(default_factory=Team)
    """The processes that train this model together."""
    replicas: Replicas | None = None
    """How they do; nothing for one alone."""
    totals: RunningTotals | None = None
    """What is known of a large graph as a whole; nothing for others."""
    recorder: Recorder = field(default_factory=lambda: Recorder(on=False))
    """Does the steps; it may replay those it knows."""

    @classmethod
    def start(
        cls, model: VEPM, config: TrainingConfig, team: Team | None = None
    ) -> "TrainingState":
        """A fresh state for a model, which several processes may train together."""
        team = team or Team()
        state = cls(
            model,
            recordable_adam(model.predictor_parameters(), config.weight_decay),
            recordable_adam(model.encoder_parameters()),
            model.activation.new_zeros(()),
            team=team,
            replicas=None if team.alone else Replicas(model, team),
        )
        if not pretrains(config):
            state.enter("finetune")
        return state

    def enter(self, phase: str) -> None:
        """Begin the next phase, forgetting the encoder's momentum of the last."""
        super().enter(phase)
        self.encoder_optimizer.state.clear()
        self.recorder.forget()


def pretrains(config: TrainingConfig) -> bool:
    """Whether there is a phase of pretraining."""
    return config.scheme != "scratch" and config.pretrain_epochs > 0
