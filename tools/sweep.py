"""Settings of VEPM or of a baseline compared over datasets, splits and seeds, by validation alone.

    python -m tools.sweep results/search/disengcn.toml --jobs 2

Unlike ``vepm tune``, which improves one run on one graph, a sweep compares the same settings across
datasets; presets and baselines are chosen with it. Test accuracies are not kept. Finished runs are
in the log: give the same command again to continue.
"""

import contextlib
import fcntl
import functools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, Self

import numpy as np
import typer
from rich.table import Table

from tools.search_log import Row, Tried, key_of, open_log, standings, trials_of
from vepm import console
from vepm.baselines import BASELINES, baseline
from vepm.data import Dataset
from vepm.errors import DivergedError, InputError
from vepm.escaping import on_one_line
from vepm.evaluation import (
    HERE,
    PROTOCOLS,
    Compute,
    RunResult,
    Split,
    VEPMMethod,
    choose_epoch,
    keep_labels,
    run_jobs,
)
from vepm.files import read_toml
from vepm.paper.experiments import task_of
from vepm.paper.plan import PRESET
from vepm.paper.runner import open_dataset
from vepm.schema import LARGEST_SEED, checked, read
from vepm.search.space import Dimension, Space, flat, parse_space
from vepm.search.tuning import STARTUP_TRIALS, suggest
from vepm.tasks import TASKS
from vepm.training import preset

SHOWN = 10
SEARCH_FOLDS = 1000
"""Seed of the random folds that searches choose on; results are measured on those of
:data:`vepm.evaluation.splits.RESULT_FOLDS`, and the earliest searches had those of seed 0."""
MOST_SETTINGS = 10_000
DRAWS_PER_SETTING = 100
EPOCHS = {
    "own": "each run at its best epoch",
    "shared": "all runs of a setting at the epoch best for their mean",
}
"""Which epoch a run is judged at. On few labels the best of many epochs is high by luck, the more
so the more a setting's accuracy fluctuates; the mean over splits has less of that."""
SAMPLERS = {
    "random": "drawn at random",
    "tpe": f"Optuna's TPE after {STARTUP_TRIALS} trials at random",
}
LOST = {"val_accuracy": 0.0, "val_loss": 0.0, "best_epoch": 0, "seconds": 0.0}
EARLIER = {"epoch": "own", "keep": [1.0], "sampler": "random", "folds": 0}
"""What searches meant before these could be chosen."""


@dataclass(frozen=True)
class Sweep:
    """What to try, and on what.

    Args:
        datasets: names of datasets.
        space: values of each setting; see :func:`vepm.search.space.parse_space`.
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
        return VEPMMethod(preset(PRESET, task_of(dataset)).replace(**settings), device)

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
        results = train_each(method, dataset, cells, compute.runs_at_once)
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


def run_sweep(
    sweep: Sweep,
    path: Path,
    *,
    root: Path | None = None,
    compute: Compute = HERE,
    minutes: float = math.inf,
    told: Callable[[list[Row]], None] = lambda rows: None,
) -> list[Row]:
    """Run what is left of a sweep; gives every run in its log.

    After so many minutes no run begins. ``told`` is called with all runs whenever there are more.
    """
    end = time.time() + 60 * minutes

    def measure(runs: Sequence[Row]) -> list[Row]:
        return sweep.measure(runs, root, compute)

    def work(parts: list[list[Row]]) -> list[list[Row]]:
        return [[] if time.time() >= end else attempt(measure, runs) for runs in parts]

    with only_writer(path):
        log = open_log(path, sweep.about, sweep.rule, EARLIER)

        def keep(_: int, rows: list[Row]) -> None:
            log.add(rows)
            told(log.rows)

        while time.time() < end and (left := sweep.left(log.rows)):
            parts = groupby(left, key=itemgetter("number", "dataset", "keep"))
            run_jobs(work, [list(runs) for _, runs in parts], compute, keep)
    return log.rows


@contextlib.contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Refuse a log that another process is writing to."""
    lock = path.with_name(f".{path.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last holder may have removed it since it was opened.
            lock.stat()
        except OSError:
            raise InputError(f"{path}: another process is writing to it; wait for it") from None
        try:
            yield
        finally:
            lock.unlink()


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


def train_each(
    method: Any, dataset: Dataset, cells: list[tuple[Split, int]], at_once: int
) -> list[RunResult]:
    """Train a method on each split with its seed, in this process."""
    if not isinstance(method, VEPMMethod):
        return [method(dataset, split, seed) for split, seed in cells]
    work = functools.partial(method.train_batch, dataset)
    batches = method.batches(dataset, cells, at_once)
    return run_jobs(work, cells, HERE, lambda _, result: result, batches)


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


def random_changes(space: Space, count: int, seed: int) -> list[dict[str, Any]]:
    """Distinct settings at random; the first changes nothing.

    There are fewer if the space does not seem to hold as many.
    """
    rng = np.random.default_rng(seed)
    drawn: dict[str, dict[str, Any]] = {"{}": {}}
    for _ in range(DRAWS_PER_SETTING * count):
        if len(drawn) >= count:
            break
        changes: dict[str, Any] = {}
        for dimension in space:
            changes |= dimension.sets(draw(dimension, rng))
        drawn.setdefault(json.dumps(changes, sort_keys=True), changes)
    return list(drawn.values())


def draw(dimension: Dimension, rng: np.random.Generator) -> Any:
    """A value, or the index of a choice, at random."""
    if dimension.choices:
        return int(rng.integers(len(dimension.choices)))
    low, high = dimension.distribution.low, dimension.distribution.high
    whole = isinstance(low, int)
    if not dimension.distribution.log:
        return int(rng.integers(low, high + 1)) if whole else float(rng.uniform(low, high))
    found = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    return round(found) if whole else min(max(found, low), high)


def by_dataset(trial: Tried) -> dict[str, list[float]]:
    """Validation accuracies of a setting on each dataset."""
    scores: dict[str, list[float]] = {}
    for row in trial.rows:
        scores.setdefault(row["dataset"], []).append(row["val_accuracy"])
    return scores


def spread(trial: Tried) -> float:
    """Standard error of the mean over seeds and splits, within datasets; NaN of a single run."""
    scores = by_dataset(trial).values()
    errors = [stdev(s) / math.sqrt(len(s)) if len(s) > 1 else math.nan for s in scores]
    return math.hypot(*errors) / len(errors)


def main(
    file: Annotated[Path, typer.Argument(help="TOML that says what to try.")],
    output: Annotated[
        Path | None, typer.Option(help="Log; by default beside the TOML, ending in .jsonl.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one per core.")] = 0,
    minutes: Annotated[float, typer.Option(min=0, help="Begin no run after so long.")] = math.inf,
    runs_at_once: Annotated[
        int, typer.Option(min=0, help="Seeds trained together on a GPU; 0 for as many as fit.")
    ] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    data_dir: Annotated[
        Path | None, typer.Option(envvar="VEPM_DATA", help="Root of the datasets.")
    ] = None,
) -> None:
    """Try settings of any method over datasets and seeds, judged on validation alone."""
    sweep = Sweep.read(file)
    path = output or file.with_suffix(".jsonl")
    with console.run_bar("runs") as progress:

        def tell(rows: list[Row]) -> None:
            if progress is not None:
                progress(len(rows), sweep.count, rows[-1]["dataset"])

        compute = Compute(device, jobs, runs_at_once)
        rows = run_sweep(sweep, path, root=data_dir, compute=compute, minutes=minutes, told=tell)
    _show(standings(rows)[:SHOWN], sweep.datasets)
    console.print_line(f"Rule: {sweep.rule}.")
    console.print_line(f"{len(rows)} of {sweep.count} runs are in {path}")


def _show(found: list[Tried], datasets: list[str]) -> None:
    table = Table("setting", "mean", *map(on_one_line, datasets), "changes")
    for trial in found:
        error, scores = spread(trial), by_dataset(trial)
        mean = f"{100 * trial.val_accuracy:.1f}"
        mean += "" if math.isnan(error) else f" ± {100 * error:.1f}"
        cells = (f"{100 * fmean(scores.get(name, [math.nan])):.1f}" for name in datasets)
        changes = ", ".join(f"{name}={value}" for name, value in trial.changes.items())
        shown = on_one_line(changes) or "the settings to improve on"
        table.add_row(str(trial.number), mean, *cells, shown)
    console.out.print(table, highlight=False)


if __name__ == "__main__":
    # Other processes know what an imported module defines, not what the main program does.
    from tools import sweep as imported

    try:
        typer.run(imported.main)
    except (InputError, OSError) as problem:
        console.print_error(problem)
        sys.exit(2)
