"""One trial after the other, each on the disk before the next begins."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vepm.errors import InputError
from vepm.search.problem import Problem
from vepm.search.records import Record, abandoned_in, records_of
from vepm.search.results import Findings
from vepm.search.study import next_trial, opened_study
from vepm.training import Config, Progress, fit

if TYPE_CHECKING:
    import optuna

TRIALS_FILE = "trials.db"
EPOCHS_BETWEEN_REPORTS = 5
STEPS_PER_SEED = 2**20
"""Steps of the pruner set apart for each seed: more than there can be epochs."""

Told = Callable[[list[Record]], None]


def tune(
    problem: Problem,
    folder: Path,
    *,
    trials: int = 20,
    timeout: float | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    told: Told | None = None,
    command: str = "",
) -> Findings:
    """Search for settings of higher validation accuracy.

    Trial 0 is the settings to improve on, so the best found are never worse on validation.
    A search that was stopped goes on with the trials it has; on one machine and device the
    trials of one that was killed are those of one that was not.

    Args:
        problem: What to improve, and how it is scored.
        folder: Where trials are kept and findings written, after every trial.
        trials: Trials in all, those already in the folder included.
        timeout: Seconds after which no further trial begins.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: Told of every epoch.
        told: Given the finished trials, at the start and after each one.
        command: How to do this again, for the summary.

    Raises:
        InputError: if Optuna is missing, the folder holds another search, or the settings to
            improve on cannot be trained.
    """
    end = time.monotonic() + (timeout if timeout is not None else float("inf"))
    with opened_study(folder / TRIALS_FILE, problem.identity) as study:
        while True:
            records = records_of(study)
            stops = abandoned_in(study)
            findings = Findings(problem, records, trials, stops, timeout, command)
            if records:
                findings.write(folder)
            if told is not None:
                told(records)
            if len(records) >= trials or (records and time.monotonic() >= end):
                return findings
            _run_trial(study, problem, len(records), device, progress)


def _run_trial(
    study: "optuna.Study",
    problem: Problem,
    number: int,
    device: str,
    progress: Progress | None,
) -> None:
    from optuna import TrialPruned
    from optuna.trial import TrialState

    trial = next_trial(study, number, problem.sampler_seed, defaults(problem))
    rows = _Rows(trial, progress)
    started = time.perf_counter()
    state, value = TrialState.FAIL, None
    try:
        value = _score(trial, rows, problem, number, device)
        state = TrialState.COMPLETE
    except TrialPruned:
        state = TrialState.PRUNED
    except InputError as error:
        if number == 0:
            raise
        # Counted as tried and hopeless, so that the search moves on.
        trial.set_user_attr("note", str(error))
        state = TrialState.PRUNED
    finally:
        trial.set_user_attr("epochs", rows.count)
        trial.set_user_attr("seconds", time.perf_counter() - started)
        study.tell(trial, value, state=state)


def defaults(problem: Problem) -> dict[str, Any]:
    """Values of the settings to improve on, where the space holds them."""
    values = problem.base_values
    held = [setting for setting in problem.space.settings if setting.holds(values[setting.name])]
    return {setting.name: values[setting.name] for setting in held}


def _settings(trial: "optuna.Trial", problem: Problem, number: int) -> Config:
    known = defaults(problem)
    # In trial 0 a setting outside its own range stays what it is.
    searched = [s for s in problem.space.settings if number > 0 or s.name in known]
    return problem.base.replace(**{setting.name: setting.suggest(trial) for setting in searched})


def _score(
    trial: "optuna.Trial", rows: "_Rows", problem: Problem, number: int, device: str
) -> float:
    config = _settings(trial, problem, number)
    losses = []
    for seed in range(problem.seeds):
        fitted = fit(
            problem.dataset,
            config,
            train_on=problem.train,
            validate_on=problem.val,
            seed=seed,
            device=device,
            progress=rows,
        )
        rows.finish_seed(fitted.best["val_accuracy"])
        losses.append(fitted.best["val_loss"])
    trial.set_user_attr("val_loss", float(np.mean(losses)))
    return float(np.mean(rows.finished))


class _Rows:
    """Listens to the epochs of a trial, and ends it when it is hopeless."""

    def __init__(self, trial: "optuna.Trial", progress: Progress | None) -> None:
        self.trial = trial
        self.progress = progress
        self.finished: list[float] = []
        self.best = 0.0
        self.count = 0

    def finish_seed(self, val_accuracy: float) -> None:
        self.finished.append(val_accuracy)
        self.best = 0.0

    def __call__(self, phase: str, epoch: int, epochs: int, row: dict[str, Any]) -> None:
        from optuna import TrialPruned

        self.count += 1
        if self.progress is not None:
            self.progress(phase, epoch, epochs, row)
        if "val_accuracy" not in row:
            return
        self.best = max(self.best, row["val_accuracy"])
        if epoch % EPOCHS_BETWEEN_REPORTS == 0:
            step = len(self.finished) * STEPS_PER_SEED + epoch
            self.trial.report(float(np.mean([*self.finished, self.best])), step)
            if self.trial.should_prune():
                raise TrialPruned
