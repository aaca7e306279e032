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
from vepm.data.features import is_sparse
from vepm.errors import InputError
from vepm.evaluation import Compute
from vepm.files import write_text
from vepm.runs.metrics import describe_machine
from vepm.search.log import Row, standings, trials_of
from vepm.search.sweeps import Sweep, run_search
from vepm.tasks import UNLABELLED
from vepm.training import Config, fit

RULE = (
    "the trial of highest validation accuracy (each seed at its best epoch, mean over seeds), "
    "then lowest validation loss; test labels were removed before the search"
)


@dataclass(frozen=True, kw_only=True)
class Tuning(Sweep):
    """A sweep of VEPM over one graph or set of graphs that need not have a name.

    Args:
        dataset: the data; all labels but those that train or validate are removed.
        train: indices of what is learned from.
        val: indices of what settings are chosen by.
        config: the settings to improve on.
    """

    dataset: Dataset
    train: Tensor
    val: Tensor
    config: Config
    sampler: str = "tpe"

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
    def about(self) -> dict[str, Any]:
        """All that must be the same for a search to continue; no test label is part of it."""
        graphs = self.dataset.graphs
        read = ("x", "edge_index", "edge_weight", "y")
        tensors = [graph[name] for graph in graphs for name in read if name in graph]
        space = self.parsed_space(self.dataset.name)
        return {
            "dataset": self.dataset.name,
            "task": self.dataset.task,
            "data": _digest([*tensors, self.train, self.val]),
            "settings": self.config.to_dict(),
            "space": {dimension.name: dimension.to_dict() for dimension in space},
            "seeds": len(self.seeds),
            "sampler_seed": self.sampler_seed,
        }

    @property
    def rule(self) -> str:
        """How settings are compared."""
        return RULE

    def start(self, dataset: str) -> Config:
        """The settings to improve on."""
        return self.config

    def measure(self, runs: Sequence[Row], root: Path | None, compute: Compute) -> list[Row]:
        """Train one setting, once with each seed."""
        found = []
        for run in runs:
            started = time.perf_counter()
            fitted = fit(
                self.dataset,
                self.config.replace(**run["changes"]),
                train_on=self.train,
                validate_on=self.val,
                seed=run["seed"],
                device=compute.device,
            )
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


def summarise(tuning: Tuning, rows: list[Row], command: str) -> dict[str, Any]:
    """All that a reader of the best settings should know."""
    trials, best = trials_of(rows), standings(rows)[0]
    refused = sum(bool(trial.refused) for trial in trials)
    default, found = (
        {"trial": t.number, "val_accuracy": t.val_accuracy, "val_loss": t.val_loss}
        for t in (trials[0], best)
    )
    return {
        "dataset": tuning.dataset.name,
        "task": tuning.dataset.task,
        "rule": RULE,
        "seeds": tuning.seeds,
        "num_val": tuning.val.numel(),
        "default": default,
        "best": found | {"changes": best.changes},
        "improvement": best.val_accuracy - trials[0].val_accuracy,
        "trials": {"asked": tuning.settings, "finished": len(trials), "refused": refused},
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

    Trial 0 is the settings to improve on, so the best found are never worse on validation. A
    search that was stopped continues with the trials in its folder, which count towards those
    asked for; on one machine and device it ends as if it had not been stopped. ``told`` hears how
    many trials are done, how many were asked for, and the best accuracy.
    """
    summary: dict[str, Any] = {}

    def write(rows: list[Row]) -> None:
        if rows:
            summary.update(summarise(tuning, rows, command))
            best = tuning.config.replace(**summary["best"]["changes"])
            write_text(folder / "best.toml", best.to_toml())
            write_text(folder / "summary.json", json.dumps(summary, indent=1))
        if told is not None:
            reached = f"best validation {summary['best']['val_accuracy']:.4f}" if rows else ""
            told(len(trials_of(rows)), tuning.settings, reached)

    minutes = math.inf if timeout is None else timeout / 60
    compute, log = Compute(device, jobs=1), folder / "trials.jsonl"
    run_search(tuning, log, compute=compute, minutes=minutes, least=1, told=write)
    return summary
