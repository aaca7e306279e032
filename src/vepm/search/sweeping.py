"""Running a sweep: one line on the disk per run, and which settings stand best."""

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from joblib import Parallel, delayed

from vepm.errors import InputError
from vepm.files import write_text
from vepm.search.sweeps import Sweep, Trial, run_trials
from vepm.training.machine import commit, describe_machine

Row = dict[str, Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Standing:
    """How a setting did over all of its runs."""

    number: int
    changes: dict[str, Any]
    val_accuracy: float
    val_loss: float
    spread: float
    """Standard error of the mean over seeds and splits, within datasets."""
    by_dataset: dict[str, float]


def run_sweep(
    sweep: Sweep,
    path: Path,
    *,
    root: Path | None = None,
    device: str = "auto",
    jobs: int = 0,
    together: int = 0,
    minutes: float = math.inf,
    progress: Progress | None = None,
) -> list[Row]:
    """Run what is left of a sweep, and give every run there is.

    Args:
        sweep: What to try.
        path: JSON lines: the sweep itself first, then a line per run, kept as it ends.
        root: PyG root of the data.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        jobs: Processes; 0 for one per core, or one in all where a GPU does the work.
        together: Runs of a setting that a process trains as one program; 0 for as many as pays.
        minutes: No run begins after so long.
        progress: Told how many runs are done and how many there are.

    Raises:
        InputError: if the file holds another sweep.
    """
    rows = _opened(path, sweep)
    done = {_key(row) for row in rows}
    trials = sweep.trials()
    left = [trial for trial in trials if trial.key not in done]
    end = time.time() + 60 * minutes
    if jobs == 0:
        cores = len(os.sched_getaffinity(0))
        jobs = 1 if device != "cpu" and torch.cuda.is_available() else cores
    parts = list(_by_setting(left).values())
    pool = Parallel(n_jobs=min(jobs, max(len(parts), 1)), return_as="generator_unordered")
    with path.open("a", encoding="utf-8") as file, warnings.catch_warnings():
        # Processes that have grown are replaced by fresh ones; nothing is lost.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
        work = (delayed(_before)(end, sweep, part, root, device, together) for part in parts)
        for found in pool(work):
            rows += found
            file.writelines(json.dumps(row) + "\n" for row in found)
            file.flush()
            os.fsync(file.fileno())
            if progress is not None:
                progress(len(rows), len(trials))
    return rows


def standings(rows: Sequence[Row]) -> list[Standing]:
    """Settings from best to worst, of those that ran wherever any did."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["number"], []).append(row)
    most = max((len(group) for group in groups.values()), default=0)
    whole = [_standing(group) for group in groups.values() if len(group) == most]
    return sorted(whole, key=lambda one: (-one.val_accuracy, one.val_loss))


def _standing(group: list[Row]) -> Standing:
    scores: dict[str, list[float]] = {}
    for row in group:
        scores.setdefault(row["dataset"], []).append(row["val_accuracy"])
    errors = [stdev(s) / math.sqrt(len(s)) if len(s) > 1 else math.nan for s in scores.values()]
    return Standing(
        group[0]["number"],
        group[0]["changes"],
        fmean(row["val_accuracy"] for row in group),
        fmean(row["val_loss"] for row in group),
        math.hypot(*errors) / len(errors),
        {name: fmean(values) for name, values in scores.items()},
    )


def _by_setting(trials: Sequence[Trial]) -> dict[tuple[int, str, float], list[Trial]]:
    parts: dict[tuple[int, str, float], list[Trial]] = {}
    for trial in trials:
        parts.setdefault((trial.number, trial.dataset, trial.keep), []).append(trial)
    return parts


def _before(
    end: float, sweep: Sweep, part: list[Trial], root: Path | None, device: str, together: int
) -> list[Row]:
    return [] if time.time() >= end else run_trials(sweep, part, root, device, together)


def _opened(path: Path, sweep: Sweep) -> list[Row]:
    """The runs a file holds; a new one is begun, and a torn last line is dropped."""
    described = json.loads(json.dumps(asdict(sweep)))
    if not path.exists():
        head = {"sweep": described, "rule": sweep.rule, "commit": commit()}
        write_text(path, json.dumps(head | {"machine": describe_machine()}) + "\n")
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    try:
        head, *rows = [json.loads(line) for line in whole]
        # What sweeps did not have when the file was begun is as it was then.
        same = {"epoch": "own", "keep": [1.0], **head["sweep"]} == described
        keys = {_key(row) for row in rows}
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: not the results of a sweep") from None
    if not same or len(keys) < len(rows):
        raise InputError(f"{path} holds another sweep; choose another file with --output")
    if len(whole) < len(lines):
        write_text(path, "".join(whole))
    return rows


def _key(row: Row) -> tuple[int, str, int, int, float]:
    return row["number"], row["dataset"], row["split"], row["seed"], row.get("keep", 1.0)
