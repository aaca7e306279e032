"""VEPM behind the same call as every baseline."""

import time
from dataclasses import dataclass

from vepm.data import Dataset
from vepm.protocols.results import RunResult
from vepm.protocols.splits import Split
from vepm.training import Config, fit

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
        started = time.perf_counter()
        fitted = fit(
            dataset,
            self.config,
            train_on=split.train,
            validate_on=split.val,
            watch=split.test,
            seed=seed,
            device=self.device,
        )
        rows = [row for row in fitted.history if row["phase"] == "finetune"]
        curve = {
            name: [row[column] for row in rows if column in row] for name, column in CURVES.items()
        }
        return RunResult.from_curve(
            self.name,
            dataset.name,
            split.name,
            seed,
            curve,
            seconds=time.perf_counter() - started,
            settings=self.config.to_dict(),
        )
