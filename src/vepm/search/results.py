"""What a search leaves behind: the best settings, every trial, and how they were judged."""

import importlib.metadata
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vepm.files import write_csv, write_text
from vepm.search.problem import Problem
from vepm.search.records import COMPLETE, PRUNED, REFUSED, Record, best_of
from vepm.search.study import PRUNER, SAMPLER
from vepm.training import Config
from vepm.training.machine import describe_machine

BEST_FILE, TABLE_FILE, SUMMARY_FILE = "best.toml", "trials.csv", "summary.json"
RULE = (
    "the trial of highest validation accuracy (each seed at its best epoch, mean over seeds), "
    "then lowest validation loss; test labels were removed before the search"
)
COLUMNS = ("trial", "state", "val_accuracy", "val_loss", "epochs", "seconds", "note")


@dataclass(frozen=True, eq=False)
class Findings:
    """The trials of a search so far."""

    problem: Problem
    records: list[Record]
    trials: int
    """How many were asked for."""
    abandoned: int = 0
    """How many were cut short when the search was stopped or killed, and begun anew."""
    timeout: float | None = None
    command: str = ""

    @property
    def best(self) -> Record:
        """The best trial; the search has begun with one that is complete."""
        found = best_of(self.records)
        assert found is not None
        return found

    @property
    def config(self) -> Config:
        """The settings of the best trial."""
        return self.problem.base.replace(**self.best.changes)

    @property
    def improvement(self) -> float:
        """How much higher the best validation accuracy is than the default's; never below 0."""
        assert self.best.val_accuracy is not None
        assert self.records[0].val_accuracy is not None
        return self.best.val_accuracy - self.records[0].val_accuracy

    def summary(self) -> dict[str, Any]:
        """All that a reader of the best settings should know."""
        states = [record.state for record in self.records]
        identity = self.problem.identity
        return {
            "dataset": identity["dataset"],
            "task": identity["task"],
            "rule": RULE,
            "seeds": list(range(self.problem.seeds)),
            "num_val": self.problem.val.numel(),
            "default": _headline(self.records[0]),
            "best": _headline(self.best) | {"changes": dict(self.best.changes)},
            "improvement": self.improvement,
            "trials": {
                "asked": self.trials,
                "finished": len(states),
                **{state: states.count(state) for state in (COMPLETE, PRUNED, REFUSED)},
                "abandoned": self.abandoned,
            },
            "timeout": self.timeout,
            "seconds": sum(record.seconds for record in self.records),
            "sampler": SAMPLER,
            "sampler_seed": self.problem.sampler_seed,
            "pruner": PRUNER,
            "space": identity["space"],
            "command": self.command,
            "versions": describe_machine() | {"optuna": importlib.metadata.version("optuna")},
        }

    def write(self, folder: Path) -> None:
        """Write best settings, table of trials and summary, each whole or not at all."""
        write_text(folder / BEST_FILE, self.config.to_toml())
        names = [setting.name for setting in self.problem.space.settings]
        rows = ([*_cells(record), *self._values(record, names)] for record in self.records)
        write_csv(folder / TABLE_FILE, [*COLUMNS, *names], rows)
        write_text(folder / SUMMARY_FILE, json.dumps(self.summary(), indent=1))

    def _values(self, record: Record, names: list[str]) -> list[Any]:
        values = {**self.problem.base_values, **record.changes}
        return [values[name] for name in names]


def _headline(record: Record) -> dict[str, Any]:
    return {
        "trial": record.number,
        "val_accuracy": record.val_accuracy,
        "val_loss": record.val_loss,
    }


def _cells(record: Record) -> list[Any]:
    cells = {"trial": record.number, **vars(record)}
    return ["" if cells[name] is None else cells[name] for name in COLUMNS]
