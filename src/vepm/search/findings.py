"""What `vepm tune` leaves behind: the best settings, every trial, and how they were judged."""

import importlib.metadata
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vepm.files import write_csv, write_text
from vepm.runs.machine import describe_machine
from vepm.search.log import Trial, standings
from vepm.search.samplers import PRUNER, SAMPLERS
from vepm.search.space import flat
from vepm.training import Config

if TYPE_CHECKING:
    from vepm.search.tuning import Problem

BEST_FILE, TABLE_FILE, SUMMARY_FILE = "best.toml", "trials.csv", "summary.json"
RULE = (
    "the trial of highest validation accuracy (each seed at its best epoch, mean over seeds), "
    "then lowest validation loss; test labels were removed before the search"
)
COLUMNS = ("trial", "state", "val_accuracy", "val_loss", "epochs", "seconds", "note")
STATES = ("complete", "pruned", "refused")


@dataclass(frozen=True, eq=False)
class Findings:
    """The trials of a search so far."""

    problem: "Problem"
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
        states = [trial.state for trial in self.trials]
        identity = self.problem.identity
        return {
            "dataset": identity["dataset"],
            "task": identity["task"],
            "rule": RULE,
            "seeds": list(range(self.problem.seeds)),
            "num_val": self.problem.val.numel(),
            "default": _headline(self.trials[0]),
            "best": _headline(self.best) | {"changes": dict(self.best.changes)},
            "improvement": self.improvement,
            "trials": {
                "asked": self.asked,
                "finished": len(states),
                **{state: states.count(state) for state in STATES},
            },
            "timeout": self.timeout,
            "seconds": sum(trial.seconds for trial in self.trials),
            "sampler": SAMPLERS["tpe"],
            "sampler_seed": self.problem.sampler_seed,
            "pruner": PRUNER,
            "space": identity["space"],
            "command": self.command,
            "versions": describe_machine() | {"optuna": importlib.metadata.version("optuna")},
        }

    def write(self, folder: Path) -> None:
        """Write best settings, table of trials and summary, each complete or not at all."""
        write_text(folder / BEST_FILE, self.config.to_toml())
        base = flat(self.problem.base)
        names = self.problem.space.names
        rows = (
            [*_cells(trial), *({**base, **trial.changes}[name] for name in names)]
            for trial in self.trials
        )
        write_csv(folder / TABLE_FILE, [*COLUMNS, *names], rows)
        write_text(folder / SUMMARY_FILE, json.dumps(self.summary(), indent=1))


def _headline(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "val_accuracy": trial.val_accuracy,
        "val_loss": trial.val_loss,
    }


def _cells(trial: Trial) -> list[Any]:
    refused, complete = trial.state == "refused", trial.state == "complete"
    epochs = sum(row["epochs"] for row in trial.rows)
    return [
        trial.number,
        trial.state,
        "" if refused else trial.val_accuracy,
        trial.val_loss if complete else "",
        epochs,
        trial.seconds,
        trial.note,
    ]
