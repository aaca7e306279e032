"""The one searcher: settings compared by validation alone, on any number of datasets."""

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from vepm.baselines import BASELINES, baseline
from vepm.data import Dataset
from vepm.errors import DivergedError, InputError
from vepm.evaluation import (
    HERE,
    PROTOCOLS,
    Compute,
    RunResult,
    Split,
    VEPMMethod,
    choose_epoch,
    evaluate_cells,
    keep_labels,
    run_jobs,
)
from vepm.files import read_toml
from vepm.paper.plan import PRESET, task_of
from vepm.paper.runner import open_dataset
from vepm.schema import LARGEST_SEED, checked, read
from vepm.search.log import Row, key_of, open_log, trials_of
from vepm.search.space import SAMPLERS, Space, flat, parse_space, random_changes, suggest
from vepm.tasks import TASKS
from vepm.training import Config, preset

SEARCH_FOLDS = 1000
"""Seed of the random folds that searches choose on; results are measured on those of seed 0."""
MOST_SETTINGS = 10_000
EPOCHS = {
    "own": "each run at its best epoch",
    "shared": "all runs of a setting at the epoch best for their mean",
}
"""Which epoch a run is judged at. On few labels the best of many epochs is high by luck, the more
so the more a setting's accuracy fluctuates; the mean over splits has less of that."""
LOST = {"val_accuracy": 0.0, "val_loss": 0.0, "best_epoch": 0, "seconds": 0.0}


@dataclass(frozen=True)
class Sweep:
    """What to try, and on what.

    Args:
        datasets: names of datasets.
        space: values of each setting; see :class:`Space`.
        settings: how many settings to try; the first is the one to improve on.
        method: ``"vepm"`` or a baseline.
        base: changes to the method's own settings that all share.
        seeds: seeds of each setting; best kept apart from those of the record.
        splits: how many of the protocol's splits to run.
        sampler_seed: seed of the draws.
        keep: parts of the training labels to keep; the runs of each are judged with equal weight.
        epoch: which epoch runs are judged at: ``"own"`` or ``"shared"``, see :data:`EPOCHS`.
        sampler: ``"random"``, or ``"tpe"``, which learns from the settings tried so far.

    Example:
        >>> sweep = Sweep(["Cora"], {"dropout": [0.5, 0.7]}, settings=2, seeds=[7])
        >>> [run["changes"] for run in sweep.left([])]
        [{}, {'dropout': 0.7}]
    """

    datasets: list[str]
    space: dict[str, Any]
    settings: int = checked(20, low=1, high=MOST_SETTINGS)
    method: str = "vepm"
    base: dict[str, Any] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=lambda: [1000])
    splits: int = checked(1, low=1)
    sampler_seed: int = checked(0, low=0, high=LARGEST_SEED)
    keep: list[float] = field(default_factory=lambda: [1.0])
    epoch: str = checked("own", choices=EPOCHS)
    sampler: str = checked("random", choices=SAMPLERS)

    @property
    def about(self) -> dict[str, Any]:
        """All that must be the same for a log to be continued."""
        folded = not all(TASKS[task_of(name)].single_graph for name in self.datasets)
        return asdict(self) | ({"folds": SEARCH_FOLDS} if folded else {})

    @property
    def rule(self) -> str:
        """How settings are compared."""
        return (
            f"highest validation accuracy ({EPOCHS[self.epoch]}, mean over datasets, parts of the "
            "labels, splits and seeds), then lowest validation loss; test labels had no part in "
            f"it, and random folds are those of seed {SEARCH_FOLDS}, which no result is measured on"
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """A sweep from TOML, all of it checked."""
        sweep = read(cls, read_toml(path), str(path))
        try:
            sweep.check()
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        return sweep

    def check(self) -> None:
        """Refuse what could not be run, before anything is."""
        wrong: dict[str, list[Any]] = {
            "datasets": [],
            "seeds": [seed for seed in self.seeds if not 0 <= seed <= LARGEST_SEED],
            "keep": [part for part in self.keep if not 0 < part <= 1],
        }
        for name, refused in wrong.items():
            values = getattr(self, name)
            if not values:
                raise InputError(f"{name} must not be empty")
            if refused:
                raise InputError(f"{name} cannot hold {refused[0]!r}")
            if twice := [value for value in values if values.count(value) > 1]:
                raise InputError(f"{name} holds {twice[0]} twice")
        for name in self.datasets:
            most = PROTOCOLS[TASKS[task_of(name)].search_protocol].num_splits
            if self.splits > most:
                raise InputError(f"{name} has {most} splits, and splits = {self.splits}")
            self.values(name, {})
            self.parsed_space(name)

    def parsed_space(self, dataset: str) -> Space:
        """The space of settings, all of them checked."""
        return parse_space(self.space, lambda changes: self.values(dataset, changes))

    def values(self, dataset: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of the method after some changes."""
        method = self.method_for(dataset, changes, "cpu")
        return flat(method.config) if isinstance(method, VEPMMethod) else method.settings()

    def method_for(self, dataset: str, changes: Mapping[str, Any], device: str) -> Any:
        """The method with these changes to its settings."""
        settings = {**self.base, **changes}
        if self.method in BASELINES:
            return baseline(self.method, dataset, device=device, settings=settings)
        if self.method != "vepm":
            raise InputError(f"no method '{self.method}'; there are vepm, {', '.join(BASELINES)}")
        return VEPMMethod(self.start(dataset).replace(**settings), device)

    def start(self, dataset: str) -> Config:
        """The settings of VEPM that the base changes."""
        return preset(PRESET, task_of(dataset))

    @property
    def count(self) -> int:
        """How many runs there are to be."""
        settings = len(self._drawn) if self.sampler == "random" else self.settings
        return settings * len(self.places())

    def left(self, rows: Sequence[Row]) -> list[Row]:
        """The runs that can begin after some are over: all others, or those of the next setting."""
        done = {key_of(row) for row in rows}
        numbered = self._drawn if self.sampler == "random" else self._suggested(rows)
        runs = [
            {"number": n, "changes": c, **place}
            for n, c in numbered.items()
            for place in self.places()
        ]
        return [run for run in runs if key_of(run) not in done]

    @functools.cached_property
    def _drawn(self) -> dict[int, Row]:
        space = self.parsed_space(self.datasets[0])
        return dict(enumerate(random_changes(space, self.settings, self.sampler_seed)))

    def _suggested(self, rows: Sequence[Row]) -> dict[int, Row]:
        trials, first = trials_of(rows), self.datasets[0]
        if trials and len(trials[-1].rows) < len(self.places()) and not trials[-1].refused:
            return {trials[-1].number: trials[-1].changes}
        if len(trials) >= self.settings:
            return {}
        space, base = self.parsed_space(first), self.values(first, {})
        return {len(trials): suggest(space, base, self.sampler_seed, trials)}

    def places(self) -> list[Row]:
        """Every dataset, with every part of the labels, on every split with every seed."""
        where = product(self.datasets, self.keep, range(self.splits), self.seeds)
        names = ("dataset", "split", "seed", "keep")
        return [dict(zip(names, (d, split, s, k), strict=True)) for d, k, split, s in where]

    def measure(self, runs: Sequence[Row], root: Path | None, compute: Compute) -> list[Row]:
        """Train one setting on splits of one dataset.

        Methods score the test part of a split as well; nothing of that is kept.
        """
        name = runs[0]["dataset"]
        dataset = open_dataset(name, root)
        splits = search_splits(dataset)
        if not splits[runs[0]["split"]].val.numel():
            raise InputError(f"{name} has no validation part to choose settings by")
        cells = [
            (keep_labels(splits[r["split"]], dataset.labels, r["keep"], r["seed"]), r["seed"])
            for r in runs
        ]
        method = self.method_for(name, runs[0]["changes"], compute.device)
        here = Compute(compute.device, 1, compute.runs_at_once)
        results = evaluate_cells(method, dataset, cells, compute=here)
        return list(map(_outcome, results, self._epochs(results)))

    def _epochs(self, results: Sequence[RunResult]) -> list[int]:
        """Epoch that each run is judged at."""
        if self.epoch == "own":
            return [result.best_epoch for result in results]
        accuracies, losses = (
            [fmean(values) for values in zip(*(r.curve[name] for r in results), strict=False)]
            for name in ("val_accuracy", "val_loss")
        )
        return [choose_epoch(accuracies, losses)] * len(results)


def run_search(
    search: Sweep,
    path: Path,
    *,
    root: Path | None = None,
    compute: Compute = HERE,
    minutes: float = math.inf,
    least: int = 0,
    told: Callable[[list[Row]], None] | None = None,
) -> list[Row]:
    """Run what is left of a search; gives every run in its log.

    After so many minutes no run begins, unless there are not even the least that must be. ``told``
    is called with all runs at the beginning and whenever there are more.
    """
    told = told or (lambda rows: None)
    end = time.time() + 60 * minutes
    with open_log(path, search.about, search.rule) as log:

        def keep(_: int, rows: list[Row]) -> None:
            log.add(rows)
            told(log.rows)

        told(log.rows)
        while left := search.left(log.rows):
            until = math.inf if len(log.rows) < least else end
            if time.time() >= until:
                break
            parts = groupby(left, key=itemgetter("number", "dataset", "keep"))
            work = functools.partial(_run, until, search, root, compute)
            run_jobs(work, [list(runs) for _, runs in parts], compute, keep)
        return log.rows


def _run(
    until: float, search: Sweep, root: Path | None, compute: Compute, runs: list[Row]
) -> list[Row]:
    """Runs with their outcomes, or nothing if time is up.

    A setting that cannot be trained is an outcome too: wrong on every label. The one to improve on
    may diverge, but must be possible.
    """
    if time.time() >= until:
        return []
    try:
        found = search.measure(runs, root, compute)
        return [run | outcome for run, outcome in zip(runs, found, strict=True)]
    except InputError as error:
        if runs[0]["number"] == 0 and not isinstance(error, DivergedError):
            raise
        return [run | LOST | {"refused": str(error)} for run in runs]


def search_splits(dataset: Dataset) -> list[Split]:
    """The splits whose validation parts compare settings; random folds are no result's."""
    return PROTOCOLS[TASKS[dataset.task].search_protocol](dataset, seed=SEARCH_FOLDS)


def _outcome(result: RunResult, epoch: int) -> Row:
    losses = result.curve["val_loss"]
    if losses and not math.isfinite(losses[epoch]):
        raise DivergedError("the validation loss is not a finite number")
    return {
        "val_accuracy": result.curve["val_accuracy"][epoch],
        # Methods that are not trained by a loss are compared by accuracy alone.
        "val_loss": losses[epoch] if losses else None,
        "best_epoch": epoch,
        "seconds": round(result.seconds, 2),
    }
