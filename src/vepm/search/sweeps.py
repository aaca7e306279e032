"""Random search over settings of any method, judged on validation alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import numpy as np

from vepm.baselines import BASELINES, baseline
from vepm.errors import DivergedError, InputError
from vepm.evaluation import (
    PROTOCOLS,
    Compute,
    Method,
    RunResult,
    VEPMMethod,
    evaluate_cells,
    keep_labels,
)
from vepm.files import read_toml
from vepm.paper import PRESET, open_dataset, task_of
from vepm.tasks import TASKS
from vepm.training import preset

DRAWS_PER_SETTING = 100
EPOCHS = {
    "own": "each run at its best epoch",
    "shared": "all runs of a setting at the epoch best for their mean",
}
"""Which epoch a run is judged at. On few labels the best of many epochs is high by luck, the more
so the more a setting's accuracy jumps about; the mean over splits has less of that."""


@dataclass(frozen=True)
class Sweep:
    """What to try, and on what.

    Args:
        datasets: names of datasets.
        space: values of each setting to draw from; a value that is a table sets several at once.
        settings: how many settings to try; the first is the one to improve on.
        method: ``"vepm"`` or a baseline.
        base: changes to the method's own settings that all share.
        seeds: seeds of each setting; best kept apart from those of the record.
        splits: how many of the protocol's splits to run.
        sampler_seed: seed of the draws.
        keep: parts of the training labels to keep; the runs of each are judged with equal weight.
        epoch: which epoch runs are judged at: ``"own"`` or ``"shared"``, see :data:`EPOCHS`.

    Example:
        >>> sweep = Sweep(("Cora",), {"dropout": [0.5, 0.7]}, settings=2, seeds=(7,))
        >>> [trial.changes for trial in sweep.trials()]
        [{}, {'dropout': 0.7}]
    """

    datasets: tuple[str, ...]
    space: Mapping[str, Sequence[Any]]
    settings: int = 20
    method: str = "vepm"
    base: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (1000,)
    splits: int = 1
    sampler_seed: int = 0
    keep: tuple[float, ...] = (1.0,)
    epoch: str = "own"

    @property
    def rule(self) -> str:
        """How settings are told apart."""
        return (
            f"highest validation accuracy ({EPOCHS[self.epoch]}, mean over datasets, parts of the "
            "labels, splits and seeds), then lowest validation loss; test labels had no part in it"
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """A sweep from TOML.

        Raises:
            InputError: if the file is none, or names what is not known.
        """
        values = read_toml(path)
        known = {item.name: item for item in fields(cls)}
        unknown = sorted(set(values) - set(known))
        lacking = sorted({"datasets", "space"} - set(values))
        if unknown or lacking:
            what = f"there is no '{unknown[0]}'" if unknown else f"'{lacking[0]}' is missing"
            raise InputError(f"{path}: {what}; a sweep has {', '.join(known)}")
        for key in {"datasets", "seeds", "keep"} & set(values):
            values[key] = tuple(values[key])
        sweep = cls(**values)
        sweep.check()
        return sweep

    def check(self) -> None:
        """Refuse what could not be run, before anything is."""
        if self.epoch not in EPOCHS:
            raise InputError(f"no epoch '{self.epoch}'; runs have {' and '.join(EPOCHS)} epochs")
        for part in self.keep:
            if not (isinstance(part, int | float) and 0 < part <= 1):
                raise InputError(f"keep has parts above 0 and up to 1 of the labels, not {part}")
        for name in self.datasets:
            most = PROTOCOLS[TASKS[task_of(name)].search_protocol].num_splits
            if not 1 <= self.splits <= most:
                raise InputError(f"{name} has {most} splits, and splits = {self.splits}")
            self.method_for(name, {}, "cpu")
            for setting, values in self.space.items():
                if not isinstance(values, list) or not values:
                    raise InputError(f"space: {setting} needs a list of values to draw from")
                for value in values:
                    self.method_for(name, _sets(setting, value), "cpu")

    def method_for(self, dataset: str, changes: Mapping[str, Any], device: str) -> Method:
        """The method with these changes to its settings."""
        settings = {**self.base, **changes}
        if self.method in BASELINES:
            return baseline(self.method, dataset, device=device, settings=settings)
        if self.method != "vepm":
            raise InputError(f"no method '{self.method}'; there are vepm, {', '.join(BASELINES)}")
        return VEPMMethod(preset(PRESET, task_of(dataset)).replace(**settings), device)

    def trials(self) -> list["Trial"]:
        """Every run there is to be, setting by setting."""
        where = list(product(self.datasets, self.keep, range(self.splits), self.seeds))
        return [
            Trial(number, changes, dataset, split, seed, keep)
            for number, changes in enumerate(self._draw())
            for dataset, keep, split, seed in where
        ]

    def _draw(self) -> list[dict[str, Any]]:
        rng = np.random.default_rng(self.sampler_seed)
        drawn: list[dict[str, Any]] = [{}]
        for _ in range(DRAWS_PER_SETTING * self.settings):
            if len(drawn) >= self.settings:
                break
            changes: dict[str, Any] = {}
            for name, values in self.space.items():
                changes |= _sets(name, values[int(rng.integers(len(values)))])
            if changes not in drawn:
                drawn.append(changes)
        return drawn


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    number: int
    changes: Mapping[str, Any]
    dataset: str
    split: int
    seed: int
    keep: float = 1.0

    @property
    def key(self) -> tuple[int, str, int, int, float]:
        """What tells it from the others."""
        return self.number, self.dataset, self.split, self.seed, self.keep


def run_trials(
    sweep: Sweep, trials: Sequence[Trial], root: Path | None, device: str, together: int
) -> list[dict[str, Any]]:
    """Train one setting on splits of one dataset, and tell how validation went.

    Methods score the test part of a split as well; nothing of that is kept. If a run diverges, all
    of its setting count as wrong on every label.

    Args:
        sweep: What they are part of.
        trials: Trials that differ in their splits and seeds alone, and so keep as many labels.
        root: PyG root of the data.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        together: Runs to train as one program; 0 for as many as pays.
    """
    first = trials[0]
    dataset = open_dataset(first.dataset, root)
    splits = PROTOCOLS[TASKS[dataset.task].search_protocol](dataset)
    if not splits[first.split].val.numel():
        raise InputError(f"{first.dataset} has no validation part for a sweep to choose by")
    method = sweep.method_for(first.dataset, first.changes, device)
    cells = [
        (keep_labels(splits[trial.split], dataset.labels, trial.keep, trial.seed), trial.seed)
        for trial in trials
    ]
    try:
        results = evaluate_cells(method, dataset, cells, compute=Compute(device, 1, together))
    except DivergedError as error:
        # A setting that cannot be trained is an outcome too: the worst.
        lost = {"val_accuracy": 0.0, "val_loss": 0.0, "best_epoch": 0, "seconds": 0.0}
        return [{**vars(trial), **lost, "diverged": str(error)} for trial in trials]
    epochs = _judged_at(sweep, results)
    return [
        {
            **vars(trial),
            "val_accuracy": result.curve["val_accuracy"][epoch],
            "val_loss": result.curve["val_loss"][epoch],
            "best_epoch": epoch,
            "seconds": round(result.seconds, 2),
        }
        for trial, result, epoch in zip(trials, results, epochs, strict=True)
    ]


def _judged_at(sweep: Sweep, results: Sequence[RunResult]) -> list[int]:
    """Epoch of every run that counts."""
    if sweep.epoch == "own":
        return [result.best_epoch for result in results]
    accuracies, losses = (
        [fmean(values) for values in zip(*(r.curve[name] for r in results), strict=False)]
        for name in ("val_accuracy", "val_loss")
    )
    best = max(range(len(accuracies)), key=lambda epoch: (accuracies[epoch], -losses[epoch]))
    return [best] * len(results)


def _sets(name: str, value: Any) -> dict[str, Any]:
    """The settings that a value of the space decides."""
    return value if isinstance(value, dict) else {name: value}
