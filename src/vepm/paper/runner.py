"""Running cells: finished ones are skipped, equal ones run once, each is written as it ends."""

import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from joblib import Parallel, delayed

from vepm.data import datasets
from vepm.errors import InputError
from vepm.paper.bundles import bundle, perform_together
from vepm.paper.cells import copy_cell, read_cell, write_cell
from vepm.paper.plan import Cell, Square
from vepm.paper.tasks import open_dataset
from vepm.training.ranks import all_ranks, from_all_ranks, own_device, rank_and_world

Progress = Callable[[int, int, str], None]
"""Told how many cells are done, how many there are, and which was last."""
FAILURES = (ValueError, RuntimeError, ArithmeticError, LookupError)
"""What may go wrong in a run without its being a mistake of ours."""


@dataclass(frozen=True)
class Options:
    """How to run.

    Args:
        folder: where results lie.
        root: PyG root of the data; the default one if None.
        device: where to compute.
        jobs: cells at a time; 0 for one per core, or one in all where a GPU does the work.
        together: runs of one setting that train as one program; 0 for as many as pays.
    """

    folder: Path
    root: Path | None = None
    device: str = "auto"
    jobs: int = 0
    together: int = 0


@dataclass
class Ended:
    """What came of a run.

    Args:
        ran: cells that were computed.
        found: cells that were there already, or stood elsewhere under the same task.
        missing: why a dataset cannot be had, by its name.
        failed: why a cell failed, by the fingerprint of its task.
    """

    ran: int = 0
    found: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def run(
    wanted: Sequence[Square],
    options: Options,
    elsewhere: Iterable[Square] = (),
    progress: Progress | None = None,
) -> Ended:
    """Compute every cell of the squares that is not there yet.

    Args:
        wanted: what to compute.
        options: how.
        elsewhere: squares of other experiments whose finished cells may serve here.
        progress: told of every cell.
    """
    ended = Ended(missing=missing_datasets(wanted, options.root))
    groups = _group(wanted, ended.missing)
    shelf: dict[str, list[Cell]] = {}
    for square in elsewhere:
        for cell in square.cells:
            shelf.setdefault(cell.task.fingerprint, []).append(cell)
    rank, world = rank_and_world()
    todo = []
    with all_ranks():
        for group in groups[rank::world]:
            rest = _reuse(group, shelf.get(group[0].task.fingerprint, []), options.folder)
            ended.found += len(group) - len(rest)
            if rest:
                todo.append(rest)
        _compute(todo, options, ended, progress)
        return _together(from_all_ranks(ended))


def _together(parts: list[Ended]) -> Ended:
    whole = Ended(sum(part.ran for part in parts), sum(part.found for part in parts))
    for part in parts:
        whole.missing |= part.missing
        whole.failed |= part.failed
    return whole


def missing_datasets(wanted: Iterable[Square], root: Path | None) -> dict[str, str]:
    """The datasets of the squares that are neither here nor can be fetched, and why."""
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


def _group(wanted: Iterable[Square], missing: dict[str, str]) -> list[list[Cell]]:
    """Cells of equal task together, and tasks by dataset, so that few are loaded at a time."""
    groups: dict[str, list[Cell]] = {}
    for square in wanted:
        for cell in square.cells:
            if cell.task.dataset not in missing:
                groups.setdefault(cell.task.fingerprint, []).append(cell)
    return sorted(groups.values(), key=lambda group: group[0].task.dataset)


def _reuse(group: list[Cell], shelf: list[Cell], folder: Path) -> list[Cell]:
    """The cells of a group that remain to be computed: all or none."""
    fingerprint = group[0].task.fingerprint
    done = [cell for cell in group if read_cell(folder / cell.path, fingerprint)]
    rest = [cell for cell in group if cell not in done]
    if not rest:
        return []
    source = next(
        (cell for cell in done + shelf if read_cell(folder / cell.path, fingerprint)), None
    )
    if source is None:
        return rest
    for cell in rest:
        copy_cell(folder, source.path, cell)
    return []


def _compute(
    todo: list[list[Cell]], options: Options, ended: Ended, progress: Progress | None
) -> None:
    if not todo:
        return
    device = own_device(options.device)
    jobs = options.jobs
    if jobs == 0:
        alone = rank_and_world()[1] > 1 or (torch.cuda.is_available() and device != "cpu")
        jobs = 1 if alone else len(os.sched_getaffinity(0))
    bundles = _bundle(todo, options, device)
    pool = Parallel(n_jobs=min(jobs, len(bundles)), return_as="generator_unordered", batch_size=1)
    with warnings.catch_warnings():
        # Processes that have grown are replaced by fresh ones; nothing is lost.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
        work = pool(
            delayed(_run_bundle)(bundle, options.folder, options.root, device) for bundle in bundles
        )
        finished = (end for ends in work for end in ends)
        for done, (group, reason) in enumerate(finished, start=1):
            cell = group[0]
            if reason is None:
                ended.ran += len(group)
            else:
                ended.failed[cell.task.fingerprint] = reason
            if progress is not None:
                progress(done, len(todo), f"{cell.experiment} {cell.row} {cell.column}")


def _bundle(todo: list[list[Cell]], options: Options, device: str) -> list[list[list[Cell]]]:
    """Groups that are computed together."""
    tasks = [group[0].task for group in todo]
    try:
        numbers = bundle(tasks, options.root, device, options.together)
    except FAILURES:
        # Whichever is to blame says so when its turn comes.
        return [[group] for group in todo]
    return [[todo[i] for i in part] for part in numbers]


def _run_bundle(
    bundle: list[list[Cell]], folder: Path, root: Path | None, device: str
) -> list[tuple[list[Cell], str | None]]:
    """Compute tasks in a process of its own; a failure is told, and stops nothing else."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    started = time.perf_counter()
    try:
        outcomes = perform_together([group[0].task for group in bundle], root, device)
        seconds = (time.perf_counter() - started) / len(bundle)
        for group, outcome in zip(bundle, outcomes, strict=True):
            for cell in group:
                write_cell(folder, cell, outcome, seconds)
    except FAILURES as error:
        if len(bundle) > 1:
            # One run must not take the others along.
            alone = (_run_bundle([group], folder, root, device) for group in bundle)
            return [end for ends in alone for end in ends]
        return [(bundle[0], f"{type(error).__name__}: {error}")]
    finally:
        torch.set_num_threads(before)
    return [(group, None) for group in bundle]
