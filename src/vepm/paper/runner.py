"""Running cells: finished ones are skipped, equal ones run once, each is written as it ends."""

import functools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from vepm.baselines import BASELINES, baseline
from vepm.data import Dataset, datasets, load
from vepm.errors import InputError
from vepm.evaluation import HERE, Compute, Split, VEPMMethod, keep_labels, protocol_named, run_jobs
from vepm.paper.cells import Record, copy_cell, read_cell, write_cell
from vepm.paper.findings import Finding, Setting
from vepm.paper.plan import Cell, Square, Task
from vepm.paper.studies import STUDIES, WHOLE
from vepm.training import pick_device

QUICK_GRAPHS = 40

Progress = Callable[[int, int, str], None]
"""Told how many runs are done, how many there are, and which was last."""
Ending = tuple[Finding, float] | str
"""What a run found and how many seconds it took, or why it failed."""
FAILURES = (ValueError, RuntimeError, ArithmeticError, LookupError)
"""What may go wrong in a run without stopping the others."""


@dataclass
class Ended:
    """What came of running squares.

    Args:
        ran: cells that were computed.
        found: cells that were there already, or stood elsewhere under the same task.
        commits: number of those by the commit that they ran on.
        missing: why a dataset cannot be had, by its name.
        failed: why a cell failed, by the fingerprint of its task.
    """

    ran: int = 0
    found: int = 0
    commits: Counter[str | None] = field(default_factory=Counter)
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def run(
    wanted: Sequence[Square],
    folder: Path,
    root: Path | None = None,
    compute: Compute = HERE,
    elsewhere: Iterable[Square] = (),
    progress: Progress | None = None,
) -> Ended:
    """Compute every cell of the squares that is not there yet."""
    ended = Ended(missing=missing_datasets(wanted, root))
    shelf, groups = _by_task(elsewhere), _by_task(wanted, ended.missing)
    todo = []
    # By dataset, so that few are loaded at a time.
    for group in sorted(groups.values(), key=lambda group: group[0].task.dataset):
        known = _reuse(group, shelf.get(group[0].task.fingerprint, []), folder)
        ended.found += len(known)
        ended.commits.update(record.commit for record in known)
        todo += [] if known else [group]
    tasks = [group[0].task for group in todo]
    batches = _batches(tasks, root, compute)
    done = 0

    def keep(index: int, endings: list[Ending]) -> list[str]:
        nonlocal done
        for i, ending in zip(batches[index], endings, strict=True):
            for cell in todo[i] if not isinstance(ending, str) else ():
                write_cell(folder, cell, *ending)
            done += 1
            if progress is not None:
                cell = todo[i][0]
                progress(done, len(todo), f"{cell.experiment} {cell.row} {cell.column}")
        return [ending if isinstance(ending, str) else "" for ending in endings]

    work = functools.partial(perform_batch, root=root, device=compute.own_device)
    jobs = [[tasks[i] for i in batch] for batch in batches]
    reasons = [reason for part in run_jobs(work, jobs, compute, keep) for reason in part]
    for i, reason in zip((i for batch in batches for i in batch), reasons, strict=True):
        if reason:
            ended.failed[tasks[i].fingerprint] = reason
        else:
            ended.ran += len(todo[i])
    return ended


def missing_datasets(wanted: Iterable[Square], root: Path | None) -> dict[str, str]:
    """The datasets of the squares that are neither here nor can be downloaded, and why."""
    here = {info.name for info in datasets(root) if info.available}
    needed = dict.fromkeys(cell.task.dataset for square in wanted for cell in square.cells)
    missing = {}
    for name in needed:
        if name not in here:
            try:
                open_dataset(name, root)
            except InputError as error:
                missing[name] = str(error)
    return missing


def _by_task(squares: Iterable[Square], missing: Collection[str] = ()) -> dict[str, list[Cell]]:
    """Cells of equal task together, but those of missing datasets."""
    groups: dict[str, list[Cell]] = {}
    for cell in (cell for square in squares for cell in square.cells):
        if cell.task.dataset not in missing:
            groups.setdefault(cell.task.fingerprint, []).append(cell)
    return groups


def _reuse(group: list[Cell], shelf: list[Cell], folder: Path) -> list[Record]:
    """The records of cells of one task, one of which is done or on the shelf; none otherwise."""
    fingerprint = group[0].task.fingerprint
    for source in (*group, *shelf):
        first = read_cell(folder / source.path, fingerprint)
        if first is not None:
            break
    else:
        return []
    found = []
    for cell in group:
        record = read_cell(folder / cell.path, fingerprint)
        if record is None:
            copy_cell(folder, source.path, cell)
        found.append(record or first)
    return found


def _batches(tasks: Sequence[Task], root: Path | None, compute: Compute) -> list[list[int]]:
    """Indices of the tasks to train as one batch: those that differ in split and seed alone."""
    most = compute.runs_at_once
    if most == 1 or (most == 0 and pick_device(compute.own_device).type == "cpu"):
        return [[i] for i in range(len(tasks))]
    alike: dict[str, list[int]] = {}
    for i, task in enumerate(tasks):
        first = replace(task, split=0, seed=0) if task.method == "vepm" else task
        alike.setdefault(first.fingerprint, []).append(i)
    batches = []
    for group in alike.values():
        own = [tasks[i] for i in group]
        try:
            dataset, cells = _cells(own, root)
            method = VEPMMethod(own[0].config, compute.own_device)
            parts = method.batches(dataset, cells, most) if len(own) > 1 else [[0]]
        except FAILURES:
            # Whichever is to blame says so when its turn comes.
            parts = [[i] for i in range(len(own))]
        batches += [[group[i] for i in part] for part in parts]
    return batches


def perform_batch(tasks: Sequence[Task], root: Path | None, device: str) -> list[Ending]:
    """Run the tasks of one batch; a failure is reported, and does not stop the others."""
    started = time.perf_counter()
    try:
        found = [perform(tasks[0], root, device)] if len(tasks) == 1 else []
        if not found:
            dataset, cells = _cells(tasks, root)
            method = VEPMMethod(tasks[0].config, device)
            found = [Finding(result=result) for result in method.train_batch(dataset, cells)]
    except FAILURES as error:
        if len(tasks) > 1:
            return [ending for task in tasks for ending in perform_batch([task], root, device)]
        return [f"{type(error).__name__}: {error}"]
    seconds = (time.perf_counter() - started) / len(tasks)
    return [(finding, seconds) for finding in found]


def perform(task: Task, root: Path | None, device: str) -> Finding:
    """Run one task."""
    dataset, split = prepare(task, root)
    if task.method in BASELINES:
        method = baseline(task.method, device=device, settings=task.settings)
        return Finding(result=method(dataset, split, task.seed))
    if task.method == "vepm":
        return Finding(result=VEPMMethod(task.config, device)(dataset, split, task.seed))
    setting = Setting(dataset, split, task.config, task.seed, device, task.quick)
    return STUDIES[task.method](setting)


def prepare(task: Task, root: Path | None) -> tuple[Dataset, Split]:
    """The data of a task and who trains, validates and tests."""
    shrink = task.quick and task.method not in WHOLE
    dataset = open_dataset(task.dataset, root, QUICK_GRAPHS if shrink else 0)
    split = protocol_named(task.protocol)(dataset)[task.split]
    return dataset, keep_labels(split, dataset.labels, task.keep, task.seed)


def _cells(tasks: Sequence[Task], root: Path | None) -> tuple[Dataset, list[tuple[Split, int]]]:
    prepared = [prepare(task, root) for task in tasks]
    return prepared[0][0], [(s, t.seed) for (_, s), t in zip(prepared, tasks, strict=True)]


@functools.lru_cache(maxsize=2)
def open_dataset(name: str, root: Path | None, graphs: int = 0) -> Dataset:
    """A dataset, or its first graphs of each class in proportion, kept for the next run."""
    dataset = load(name, root)
    if not graphs or len(dataset.graphs) <= graphs:
        return dataset
    labels = dataset.labels
    share = graphs / len(labels)
    chosen = [
        (labels == label).nonzero().flatten()[: max(1, round(share * int((labels == label).sum())))]
        for label in labels.unique()
    ]
    kept = sorted(torch.cat(chosen).tolist())
    names = dataset.graph_names
    return replace(
        dataset,
        graphs=[dataset.graphs[i] for i in kept],
        graph_names=None if names is None else tuple(names[i] for i in kept),
        folds=None,
        splits=None,
    )
