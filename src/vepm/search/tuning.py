"""Search for better settings of VEPM on data in memory."""

import hashlib
import importlib.metadata
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.data.canonical import is_sparse
from vepm.errors import DivergedError, InputError
from vepm.files import write_text
from vepm.runs import describe_machine
from vepm.search.log import Row, open_log, standings, trials_of
from vepm.search.space import Space, flat, suggest
from vepm.tasks import UNLABELLED
from vepm.training import Config, fit

RULE = (
    "the trial of highest validation accuracy (each seed at its best epoch, mean over seeds), "
    "then lowest validation loss; test labels were removed before the search"
)
LOST = {"val_accuracy": 0.0, "val_loss": 0.0, "best_epoch": 0, "seconds": 0.0}


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What to improve, on what, and how far to search."""

    dataset: Dataset  # all labels but those that train or validate are removed
    train: Tensor  # indices of what is learned from
    val: Tensor  # indices of what settings are chosen by
    config: Config  # the settings to improve on, which trial 0 has
    space: Space
    trials: int = 20
    seeds: int = 1  # trainings of each trial
    sampler_seed: int = 0

    def __post_init__(self) -> None:
        if not self.train.numel() or not self.val.numel():
            raise InputError(
                f"{self.dataset.name}: no {self.dataset.task}s to train or to validate on; tuning "
                "needs labels to learn from and others to choose by"
            )
        kept = torch.cat([self.train, self.val])
        labels = torch.full_like(self.dataset.labels, UNLABELLED)
        labels[kept] = self.dataset.labels[kept]
        object.__setattr__(self, "dataset", self.dataset.with_labels(labels))

    @property
    def about(self) -> dict[str, Any]:
        """All that must be the same for a search to continue; no test label is part of it."""
        read = ("x", "edge_index", "edge_weight", "y")
        tensors = [graph[name] for graph in self.dataset.graphs for name in read if name in graph]
        return {
            "dataset": self.dataset.name,
            "task": self.dataset.task,
            "data": _digest([*tensors, self.train, self.val]),
            "settings": self.config.to_dict(),
            "space": {dimension.name: dimension.to_dict() for dimension in self.space},
            "seeds": self.seeds,
            "sampler_seed": self.sampler_seed,
        }

    def next_runs(self, rows: Sequence[Row]) -> list[Row]:
        """The runs of the next trial, or what is missing of the last; none when all are over."""
        trials = trials_of(rows)
        number = len(trials)
        if trials and len(trials[-1].rows) < self.seeds:
            number, changes = number - 1, trials[-1].changes
        elif number < self.trials:
            changes = suggest(self.space, flat(self.config), self.sampler_seed, trials)
        else:
            return []
        done = {row["seed"] for row in rows if row["number"] == number}
        place = {"number": number, "changes": changes, "dataset": self.dataset.name, "split": 0}
        return [place | {"seed": s, "keep": 1.0} for s in range(self.seeds) if s not in done]

    def measure(self, runs: Sequence[Row], device: str) -> list[Row]:
        """Train one setting, once with each seed."""
        found = []
        for run in runs:
            started, config = time.perf_counter(), self.config.replace(**run["changes"])
            parts: dict[str, Any] = {"train_on": self.train, "validate_on": self.val}
            fitted = fit(self.dataset, config, **parts, seed=run["seed"], device=device)
            scores = {name: fitted.best[name] for name in ("val_accuracy", "val_loss")}
            seconds = time.perf_counter() - started
            found.append({**scores, "best_epoch": fitted.best_epoch, "seconds": seconds})
        return found


def _digest(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(repr(tuple(tensor.shape)).encode())
        parts = (tensor.indices(), tensor.values()) if is_sparse(tensor) else (tensor,)
        for part in parts:
            digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()


def attempt(measure: Callable[[Sequence[Row]], list[Row]], runs: Sequence[Row]) -> list[Row]:
    """The runs of a setting with their outcomes; one that cannot be trained has lost.

    The setting to improve on may diverge, but must be possible.
    """
    try:
        return [run | outcome for run, outcome in zip(runs, measure(runs), strict=True)]
    except InputError as error:
        if runs[0]["number"] == 0 and not isinstance(error, DivergedError):
            raise
        return [run | LOST | {"refused": str(error)} for run in runs]


def summarise(tuning: Tuning, rows: list[Row], command: str) -> dict[str, Any]:
    """All that a reader of the best settings should know."""
    trials, best = trials_of(rows), standings(rows)[0]
    default, found = (
        {"trial": t.number, "val_accuracy": t.val_accuracy, "val_loss": t.val_loss}
        for t in (trials[0], best)
    )
    refused = sum(bool(trial.refused) for trial in trials)
    return {
        "dataset": tuning.dataset.name,
        "task": tuning.dataset.task,
        "rule": RULE,
        "seeds": list(range(tuning.seeds)),
        "num_val": tuning.val.numel(),
        "default": default,
        "best": found | {"changes": best.changes},
        "improvement": best.val_accuracy - trials[0].val_accuracy,
        "trials": {"asked": tuning.trials, "finished": len(trials), "refused": refused},
        "seconds": sum(row["seconds"] for row in rows),
        "sampler_seed": tuning.sampler_seed,
        "command": command,
        "versions": describe_machine() | {"optuna": importlib.metadata.version("optuna")},
    }


def tune(
    tuning: Tuning,
    folder: Path,
    *,
    timeout: float | None = None,
    device: str = "auto",
    told: Callable[[int, int, str], None] | None = None,
    command: str = "",
) -> dict[str, Any]:
    """Search for settings of higher validation accuracy; gives the summary.

    A search that was stopped continues with the trials in its folder, which count towards those
    asked for; on one machine and device it ends as if it had not been stopped. After ``timeout``
    seconds no trial begins but the first.
    """
    summary: dict[str, Any] = {}
    told = told or (lambda done, asked, reached: None)
    end = time.monotonic() + (math.inf if timeout is None else timeout)
    log = open_log(folder / "trials.jsonl", tuning.about, RULE)
    while True:
        reached = ""
        if log.rows:
            summary = summarise(tuning, log.rows, command)
            best = tuning.config.replace(**summary["best"]["changes"])
            write_text(folder / "best.toml", best.to_toml())
            write_text(folder / "summary.json", json.dumps(summary, indent=1))
            reached = f"best validation {summary['best']['val_accuracy']:.4f}"
        told(len(trials_of(log.rows)), tuning.trials, reached)
        late = log.rows and time.monotonic() >= end
        runs = [] if late else tuning.next_runs(log.rows)
        if not runs:
            return summary
        log.add(attempt(lambda runs: tuning.measure(runs, device), runs))
