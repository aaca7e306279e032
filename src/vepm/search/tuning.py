"""Search for better settings of VEPM on one graph or set of graphs, trial by trial."""

import hashlib
import importlib.metadata
import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.data.features import is_sparse
from vepm.errors import InputError
from vepm.files import write_csv, write_text
from vepm.runs.metrics import describe_machine
from vepm.search.log import Row, Trial, open_log, standings, trials_of
from vepm.search.space import EPOCHS_BETWEEN_REPORTS, PRUNER, SAMPLERS, TPE, Space, flat
from vepm.tasks import UNLABELLED
from vepm.training import Config, fit

RULE = (
    "the trial of highest validation accuracy (each seed at its best epoch, mean over seeds), "
    "then lowest validation loss; test labels were removed before the search"
)
COLUMNS = ("trial", "state", "val_accuracy", "val_loss", "epochs", "seconds", "note")
STATES = ("complete", "pruned", "refused")


@dataclass(frozen=True, eq=False)
class Problem:
    """Settings to improve on, and what decides which are better."""

    dataset: Dataset
    """All labels but those that train or validate are removed."""
    train: Tensor
    val: Tensor
    base: Config
    """The settings of trial 0; the others change what the space names."""
    space: Space
    seeds: int = 1
    """Trainings per trial, with seeds 0, 1, ...; their mean scores it."""
    sampler_seed: int = 0

    def __post_init__(self) -> None:
        for role, rows in (("train", self.train), ("validate", self.val)):
            if rows.numel() == 0:
                raise InputError(
                    f"{self.dataset.name}: no {self.dataset.task} is there to {role} on; tuning "
                    "needs labels to learn from and others to choose by"
                )
        kept = torch.cat([self.train, self.val])
        labels = torch.full_like(self.dataset.labels, UNLABELLED)
        labels[kept] = self.dataset.labels[kept]
        object.__setattr__(self, "dataset", self.dataset.with_labels(labels))

    @property
    def identity(self) -> dict[str, Any]:
        """All that must be the same for a search to continue; no test label is part of it."""
        graphs = self.dataset.graphs
        read = ("x", "edge_index", "edge_weight", "y")
        tensors = [graph[name] for graph in graphs for name in read if name in graph]
        return {
            "dataset": self.dataset.name,
            "task": self.dataset.task,
            "data": _digest([*tensors, self.train, self.val]),
            "settings": self.base.to_dict(),
            "space": self.space.to_dict(),
            "seeds": self.seeds,
            "sampler_seed": self.sampler_seed,
        }


def _digest(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(repr(tuple(tensor.shape)).encode())
        parts = (tensor.indices(), tensor.values()) if is_sparse(tensor) else (tensor,)
        for part in parts:
            digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Findings:
    """The trials of a search so far."""

    problem: Problem
    trials: list[Trial]
    asked: int
    """How many were asked for."""
    timeout: float | None = None
    command: str = ""

    @property
    def best(self) -> Trial:
        """The best trial; the first is complete, so there is one."""
        return standings([row for trial in self.trials for row in trial.rows])[0]

    @property
    def config(self) -> Config:
        """The settings of the best trial."""
        return self.problem.base.replace(**self.best.changes)

    @property
    def improvement(self) -> float:
        """How much higher the best validation accuracy is than the default's; never below 0."""
        return self.best.val_accuracy - self.trials[0].val_accuracy

    def summary(self) -> dict[str, Any]:
        """All that a reader of the best settings should know."""
        problem, best = self.problem, self.best
        states = [trial.state for trial in self.trials]
        default, found = (
            {"trial": t.number, "val_accuracy": t.val_accuracy, "val_loss": t.val_loss}
            for t in (self.trials[0], best)
        )
        counts = {state: states.count(state) for state in STATES}
        return {
            "dataset": problem.dataset.name,
            "task": problem.dataset.task,
            "rule": RULE,
            "seeds": list(range(problem.seeds)),
            "num_val": problem.val.numel(),
            "default": default,
            "best": found | {"changes": dict(best.changes)},
            "improvement": self.improvement,
            "trials": {"asked": self.asked, "finished": len(states), **counts},
            "timeout": self.timeout,
            "seconds": sum(trial.seconds for trial in self.trials),
            "sampler": SAMPLERS["tpe"],
            "sampler_seed": problem.sampler_seed,
            "pruner": PRUNER,
            "space": problem.space.to_dict(),
            "command": self.command,
            "versions": describe_machine() | {"optuna": importlib.metadata.version("optuna")},
        }

    def write(self, folder: Path) -> None:
        """Write best settings, table of trials and summary, each complete or not at all."""
        write_text(folder / "best.toml", self.config.to_toml())
        base, names = flat(self.problem.base), self.problem.space.names
        rows = (
            [
                trial.number,
                trial.state,
                "" if trial.state == "refused" else trial.val_accuracy,
                trial.val_loss if trial.state == "complete" else "",
                sum(row["epochs"] for row in trial.rows),
                trial.seconds,
                trial.note,
                *({**base, **trial.changes}[name] for name in names),
            ]
            for trial in self.trials
        )
        write_csv(folder / "trials.csv", [*COLUMNS, *names], rows)
        write_text(folder / "summary.json", json.dumps(self.summary(), indent=1))


def tune(
    problem: Problem,
    folder: Path,
    *,
    trials: int = 20,
    timeout: float | None = None,
    device: str = "auto",
    told: Callable[[int, int, str], None] | None = None,
    command: str = "",
) -> Findings:
    """Search for settings of higher validation accuracy.

    Trial 0 is the settings to improve on, so the best found are never worse on validation. A
    search that was stopped continues with the trials in its folder, which count towards those
    asked for; on one machine and device it ends as if it had not been stopped. ``told`` hears how
    many trials are done, how many were asked for, and the best accuracy.
    """
    end = math.inf if timeout is None else time.monotonic() + timeout
    sampler = TPE(problem.space, flat(problem.base), problem.sampler_seed)
    with open_log(folder / "trials.jsonl", problem.identity, RULE) as log:
        while True:
            found = trials_of(log.rows)
            findings = Findings(problem, found, trials, timeout, command)
            if found:
                findings.write(folder)
            if told is not None:
                best = f"best validation {findings.best.val_accuracy:.4f}" if found else ""
                told(len(found), trials, best)
            if len(found) >= trials or (found and time.monotonic() >= end):
                return findings
            changes = sampler.suggest(found)
            log.add(_run_trial(problem, sampler, len(found), changes, device))


def _run_trial(
    problem: Problem, sampler: TPE, number: int, changes: dict[str, Any], device: str
) -> list[Row]:
    """Train with each seed until all are done or the trial is hopeless."""
    name = problem.dataset.name
    where = {"number": number, "changes": changes, "dataset": name, "split": 0, "keep": 1.0}
    rows: list[Row] = []
    for seed in range(problem.seeds):
        listener = _Listener(sampler, [row["val_accuracy"] for row in rows])
        started = time.perf_counter()
        found: Row
        try:
            best = fit(
                problem.dataset,
                problem.base.replace(**changes),
                train_on=problem.train,
                validate_on=problem.val,
                seed=seed,
                device=device,
                progress=listener,
            ).best
            found = {"val_accuracy": best["val_accuracy"], "val_loss": best["val_loss"]}
        except _Hopeless:
            found = {"val_accuracy": listener.best, "val_loss": None, "pruned": True}
        except InputError as error:
            if number == 0:
                raise
            found = {"val_accuracy": 0.0, "val_loss": None, "refused": str(error)}
        seconds = time.perf_counter() - started
        run = {"seed": seed, "best_epoch": listener.best_epoch, "seconds": seconds}
        seen = {"epochs": listener.count, "reached": listener.reached}
        rows.append({**where, **run, **found, **seen})
        if "pruned" in found or "refused" in found:
            break
    return rows


class _Hopeless(Exception):  # noqa: N818
    """Ends a training that the pruner has given up on."""


class _Listener:
    """Follows the epochs of one training, and ends it when its trial is hopeless."""

    def __init__(self, sampler: TPE, finished: list[float]) -> None:
        self.sampler, self.finished = sampler, finished
        self.best, self.best_epoch, self.count, self.judged = 0.0, 0, 0, 0
        self.reached: list[float] = []
        """Best accuracy so far at every epoch that was reported."""

    def __call__(self, phase: str, epoch: int, epochs: int, row: dict[str, Any]) -> None:
        self.count += 1
        if "val_accuracy" not in row:
            return
        if row["val_accuracy"] > self.best:
            self.best, self.best_epoch = row["val_accuracy"], epoch
        # Counted here: where a training tries several models, each begins at the first epoch.
        self.judged += 1
        if self.judged % EPOCHS_BETWEEN_REPORTS == 0:
            self.reached.append(self.best)
            mean = float(np.mean([*self.finished, self.best]))
            if self.sampler.is_hopeless(mean, len(self.finished), self.judged):
                raise _Hopeless
