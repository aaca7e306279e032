"""Running cells: finished ones are skipped, equal ones run once, each is written as it ends."""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sklearn.model_selection import StratifiedKFold

from vepm.baselines import BASELINES, baseline
from vepm.data import Dataset, datasets, load
from vepm.errors import InputError
from vepm.evaluation import HERE, Compute, Split, VEPMMethod, keep_labels, protocol_named, run_jobs
from vepm.paper.cells import Cell, Finding, Setting, Task, copy_cell, read_cell, write_cell
from vepm.paper.plan import Square
from vepm.paper.studies import STUDIES, WHOLE
from vepm.training import pick_device

QUICK_GRAPHS = 40  # of a dataset, at least, in a quick run
FAILURES = (ValueError, RuntimeError, ArithmeticError, LookupError)  # which stop no other run

Ending = tuple[Finding, float] | str  # what a run found and its seconds, or why it failed
Progress = Callable[[int, int, str], None]  # told runs done, runs in all, and which was last


def batches_of(tasks: Sequence[Task], root: Path | None, compute: Compute) -> list[list[int]]:
    """Indices of the tasks to train as one batch: those that differ in split and seed alone."""
    most, device = compute.runs_at_once, compute.own_device
    alone = most == 1 or (most == 0 and pick_device(device).type == "cpu")
    alike: dict[str, list[int]] = {}
    for i, task in enumerate(tasks):
        batched = task.method == "vepm" and not alone
        first = replace(task, split=0, seed=0) if batched else task
        alike.setdefault(first.fingerprint, []).append(i)
    batches = []
    for group in alike.values():
        own = [tasks[i] for i in group]
        parts = [[i] for i in range(len(own))]
        # A task that cannot be prepared reports it when it is run.
        with contextlib.suppress(*FAILURES):
            if len(own) > 1:
                parts = VEPMMethod(own[0].config, device).batches(*_prepare(own, root), most)
        batches += [[group[i] for i in part] for part in parts]
    return batches


def perform_batch(tasks: Sequence[Task], root: Path | None, device: str) -> list[Ending]:
    """Run the tasks of one batch; a failure is reported, and does not stop the others."""
    started = time.perf_counter()
    try:
        found = _perform(tasks, root, device)
    except FAILURES as error:
        if len(tasks) > 1:
            return [ending for task in tasks for ending in perform_batch([task], root, device)]
        return [f"{type(error).__name__}: {error}"]
    seconds = (time.perf_counter() - started) / len(tasks)
    return [(finding, seconds) for finding in found]


def _perform(tasks: Sequence[Task], root: Path | None, device: str) -> list[Finding]:
    task, (dataset, runs) = tasks[0], _prepare(tasks, root)
    if task.method == "vepm":
        results = VEPMMethod(task.config, device).train_batch(dataset, runs)
        return [Finding(result=result) for result in results]
    [(split, seed)] = runs
    if task.method in BASELINES:
        method = baseline(task.method, device=device, settings=task.settings)
        return [Finding(result=method(dataset, split, seed))]
    return [STUDIES[task.method](Setting(dataset, split, task.config, seed, device, task.quick))]


def _prepare(tasks: Sequence[Task], root: Path | None) -> tuple[Dataset, list[tuple[Split, int]]]:
    """The dataset of tasks that differ only in split and seed, and the split and seed of each."""
    first = tasks[0]
    dataset = open_dataset(first.dataset, root, first.quick and first.method not in WHOLE)
    splits = protocol_named(first.protocol)(dataset)
    return dataset, [
        (keep_labels(splits[task.split], dataset.labels, task.keep, task.seed), task.seed)
        for task in tasks
    ]


@functools.lru_cache(maxsize=2)
def open_dataset(name: str, root: Path | None, shrink: bool = False) -> Dataset:
    """A dataset, or a few of its graphs, of each class in proportion; kept for the next run."""
    dataset = load(name, root)
    parts = len(dataset.graphs) // QUICK_GRAPHS
    if not shrink or parts < 2:
        return dataset
    _, kept = next(StratifiedKFold(parts).split(dataset.labels, dataset.labels))
    names = dataset.graph_names and tuple(dataset.graph_names[i] for i in kept)
    chosen = [dataset.graphs[i] for i in kept]
    return replace(dataset, graphs=chosen, graph_names=names, folds=None, splits=None)


@dataclass
class Ended:
    """The outcome of running squares."""

    ran: int = 0  # cells that were run
    found: int = 0  # cells that were here or elsewhere
    missing: dict[str, str] = field(default_factory=dict)  # datasets, and why
    failed: dict[str, str] = field(default_factory=dict)  # tasks by their fingerprint, and why


def run(
    wanted: Sequence[Square],
    folder: Path,
    root: Path | None = None,
    compute: Compute = HERE,
    elsewhere: Iterable[Square] = (),
    progress: Progress | None = None,
) -> Ended:
    """Compute every cell of the squares that is not there yet, nor elsewhere under another name."""
    ended = Ended(missing=_missing_datasets(wanted, root))
    groups, shelf = _by_task(wanted), _by_task([*wanted, *elsewhere])
    todo: list[list[Cell]] = []
    # Sorted by dataset, so that few are loaded at a time.
    for group in sorted(groups.values(), key=lambda group: group[0].task.dataset):
        if group[0].task.dataset in ended.missing:
            continue
        if _reuse(group, shelf[group[0].task.fingerprint], folder):
            ended.found += len(group)
        else:
            todo.append(group)
    tasks, done = [group[0].task for group in todo], itertools.count(1)

    def keep(i: int, ending: Ending) -> str:
        """Write the cells of a task; returns why it failed, if it did."""
        for cell in todo[i] if not isinstance(ending, str) else ():
            write_cell(folder, cell, *ending)
        if progress is not None:
            cell = todo[i][0]
            progress(next(done), len(todo), f"{cell.experiment} {cell.row} {cell.column}")
        return ending if isinstance(ending, str) else ""

    work = functools.partial(perform_batch, root=root, device=compute.own_device)
    reasons = run_jobs(work, tasks, compute, keep, batches_of(tasks, root, compute))
    reached = zip(tasks, reasons, strict=True)
    ended.failed = {task.fingerprint: reason for task, reason in reached if reason}
    ended.ran = sum(len(cells) for cells in todo if cells[0].task.fingerprint not in ended.failed)
    return ended


def _missing_datasets(wanted: Iterable[Square], root: Path | None) -> dict[str, str]:
    """The datasets of the squares that are neither here nor can be downloaded, and why."""
    here = {info.name for info in datasets(root) if info.available}
    needed = dict.fromkeys(cell.task.dataset for square in wanted for cell in square.cells)
    missing = {}
    for name in (name for name in needed if name not in here):
        try:
            open_dataset(name, root)
        except InputError as error:
            missing[name] = str(error)
    return missing


def _by_task(squares: Iterable[Square]) -> dict[str, list[Cell]]:
    """Cells of equal task together, each once."""
    groups: dict[str, dict[Path, Cell]] = {}
    for cell in (cell for square in squares for cell in square.cells):
        groups.setdefault(cell.task.fingerprint, {})[cell.path] = cell
    return {task: list(cells.values()) for task, cells in groups.items()}


def _reuse(group: list[Cell], equals: list[Cell], folder: Path) -> bool:
    """Copy a finished one of the equal cells, if there is one, to where others belong."""
    found = {c.path: read_cell(folder / c.path, c.task.fingerprint) for c in equals}
    first = next(filter(None, found.values()), None)
    if first is None:
        return False
    for cell in group:
        if found[cell.path] is None:
            copy_cell(first, folder, cell)
    return True
