"""VEPM behind the same call as every baseline."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vepm.data import Dataset
from vepm.evaluation.evaluation import Cell
from vepm.evaluation.results import Curve, RunResult
from vepm.evaluation.splits import Split
from vepm.training import Config, Run, bundles, fit_together, most_together

CURVES = {
    "val_accuracy": "val_accuracy",
    "val_loss": "val_loss",
    "test_accuracy": "test_accuracy",
    "train_loss": "loss",
}


@dataclass(frozen=True)
class VEPMMethod:
    """Train VEPM with given settings; accuracies are those of the posterior mean.

    Args:
        config: The settings.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        name: What results are called.
    """

    config: Config
    device: str = "auto"
    name: str = "vepm"

    def __call__(self, dataset: Dataset, split: Split, seed: int) -> RunResult:
        """Train on ``split.train``, choose on ``split.val``, watch ``split.test``."""
        return self.together(dataset, [(split, seed)])[0]

    def bundles(self, dataset: Dataset, cells: Sequence[Cell], most: int) -> list[list[int]]:
        """Numbers of the runs to train together; ``most`` of 0 takes as many as pays."""
        most = most or most_together(dataset, self.config, self.device)
        return bundles(dataset, self.config, _runs(cells), most)

    def together(self, dataset: Dataset, cells: Sequence[Cell]) -> list[RunResult]:
        """Runs of one bundle as one program; each takes an equal share of the time."""
        started = time.perf_counter()
        runs = _runs(cells)
        fitted = fit_together(dataset, self.config, runs, self.device, calibrated=False)
        seconds = (time.perf_counter() - started) / len(cells)
        return [
            RunResult.from_curve(
                self.name,
                dataset.name,
                split.name,
                seed,
                _curve(one.history),
                seconds=seconds,
                settings=self.config.to_dict(),
            )
            for (split, seed), one in zip(cells, fitted, strict=True)
        ]


def _runs(cells: Sequence[Cell]) -> list[Run]:
    return [Run(split.train, split.val, split.test, seed) for split, seed in cells]


def _curve(history: list[dict[str, Any]]) -> Curve:
    rows = [row for row in history if row["phase"] == "finetune"]
    return {name: [row[column] for row in rows if column in row] for name, column in CURVES.items()}
