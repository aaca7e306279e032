"""Running cells: finished ones are skipped, equal ones run once, each is written as it ends."""

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from vepm.baselines import BASELINES, baseline
from vepm.data import Dataset, datasets, load
from vepm.errors import InputError
from vepm.evaluation import HERE, Compute, Split, VEPMMethod, keep_labels, protocol_named, run_jobs
from vepm.paper.cells import Cell, Finding, Record, Setting, Task, copy_cell, read_cell, write_cell
from vepm.paper.plan import Square
from vepm.paper.studies import NEEDS, STUDIES, WHOLE
from vepm.training import pick_device
from vepm.training.config import TRIED

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

    Cells ran, or were found here or elsewhere; ``commits`` counts the latter by the commit that
    they ran on. Datasets are missing, methods lack a package, and tasks, by their fingerprint,
    failed for a reason.
    """

    ran: int = 0
    found: int = 0
    commits: Counter[str | None] = field(default_factory=Counter)
    missing: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
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
    groups = _by_task(wanted)
    shelf = _by_task([*wanted, *elsewhere])
    todo: list[list[Cell]] = []
    # By dataset, so that few are loaded at a time.
    for group in sorted(groups.values(), key=lambda group: group[0].task.dataset):
        if group[0].task.dataset in ended.missing:
            continue
        known = _reuse(group, shelf, folder) or _chosen(group, shelf, folder)
        ended.found += len(known)
        ended.commits.update(record.commit for record in known)
        package = NEEDS.get(method := group[0].task.method)
        if not known and package and find_spec(package) is None:
            ended.absent[method] = f"{package} is not installed"
            continue
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
    for batch, reasons in zip(batches, run_jobs(work, jobs, compute, keep), strict=True):
        for i, reason in zip(batch, reasons, strict=True):
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


def _by_task(squares: Iterable[Square]) -> dict[str, list[Cell]]:
    """Cells of equal task together."""
    groups: dict[str, list[Cell]] = {}
    for cell in (cell for square in squares for cell in square.cells):
        groups.setdefault(cell.task.fingerprint, []).append(cell)
    return groups


def _reuse(group: list[Cell], shelf: Mapping[str, list[Cell]], folder: Path) -> list[Record]:
    """The records of cells of one task, one of which is done or on the shelf; none otherwise."""
    found = {cell.path: read_cell(folder / cell.path, cell.task.fingerprint) for cell in group}
    first = next(filter(None, found.values()), None) or _first(group[0].task, shelf, folder)
    if first is None:
        return []
    for cell in group:
        if found[cell.path] is None:
            copy_cell(first, folder, cell)
    return [record or first for record in found.values()]


def _first(task: Task, shelf: Mapping[str, list[Cell]], folder: Path) -> Record | None:
    """A finished cell of a task."""
    cells = shelf.get(task.fingerprint, [])
    records = (read_cell(folder / cell.path, task.fingerprint) for cell in cells)
    return next(filter(None, records), None)


def _chosen(group: list[Cell], shelf: Mapping[str, list[Cell]], folder: Path) -> list[Record]:
    """The records of runs that choose what validates best, where a run with each is done."""
    task, found = group[0].task, list[Record]()
    model = task.settings.get("model", {})
    if model.get("partition") != "auto":
        return []
    for changes in TRIED.values():
        own = replace(task, settings={**task.settings, "model": model | changes})
        record = _first(own, shelf, folder)
        if record is None or record.result is None:
            return []
        found.append(record)
    best = max(found, key=lambda record: record.result.score if record.result else (0.0, 0.0))
    for cell in group:
        copy_cell(best, folder, cell)
    return [best] * len(group)


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
        parts = [[i] for i in range(len(own))]
        # Whichever cannot be prepared says so when its turn comes.
        with contextlib.suppress(*FAILURES):
            if len(own) > 1:
                method = VEPMMethod(own[0].config, compute.own_device)
                parts = method.batches(*_prepare(own, root), most)
        batches += [[group[i] for i in part] for part in parts]
    return batches


def perform_batch(tasks: Sequence[Task], root: Path | None, device: str) -> list[Ending]:
    """Run the tasks of one batch; a failure is reported, and does not stop the others."""
    started = time.perf_counter()
    try:
        if len(tasks) == 1:
            found = [perform(tasks[0], root, device)]
        else:
            results = VEPMMethod(tasks[0].config, device).train_batch(*_prepare(tasks, root))
            found = [Finding(result=result) for result in results]
    except FAILURES as error:
        if len(tasks) > 1:
            return [ending for task in tasks for ending in perform_batch([task], root, device)]
        return [f"{type(error).__name__}: {error}"]
    seconds = (time.perf_counter() - started) / len(tasks)
    return [(finding, seconds) for finding in found]


def perform(task: Task, root: Path | None, device: str) -> Finding:
    """Run one task."""
    dataset, [(split, seed)] = _prepare([task], root)
    if task.method in BASELINES:
        method = baseline(task.method, device=device, settings=task.settings)
        return Finding(result=method(dataset, split, seed))
    if task.method == "vepm":
        return Finding(result=VEPMMethod(task.config, device)(dataset, split, seed))
    return STUDIES[task.method](Setting(dataset, split, task.config, seed, device, task.quick))


def _prepare(tasks: Sequence[Task], root: Path | None) -> tuple[Dataset, list[tuple[Split, int]]]:
    """The data of tasks that differ in split and seed alone, and those of each."""
    first = tasks[0]
    shrink = first.quick and first.method not in WHOLE
    dataset = open_dataset(first.dataset, root, QUICK_GRAPHS if shrink else 0)
    splits = protocol_named(first.protocol)(dataset)
    return dataset, [
        (keep_labels(splits[task.split], dataset.labels, task.keep, task.seed), task.seed)
        for task in tasks
    ]


@functools.lru_cache(maxsize=2)
def open_dataset(name: str, root: Path | None, graphs: int = 0) -> Dataset:
    """A dataset, or its first graphs of each class in proportion, kept for the next run."""
    dataset = load(name, root)
    labels = dataset.labels
    if not graphs or len(dataset.graphs) <= graphs:
        return dataset
    kept = []
    for label in labels.unique():
        own = (labels == label).nonzero().flatten().tolist()
        kept += own[: max(1, round(graphs / len(labels) * len(own)))]
    kept.sort()
    names = dataset.graph_names and tuple(dataset.graph_names[i] for i in kept)
    chosen = [dataset.graphs[i] for i in kept]
    return replace(dataset, graphs=chosen, graph_names=names, folds=None, splits=None)
