"""Running cells: finished ones are skipped, equal ones run once, each is written as it ends."""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vepm.data import datasets
from vepm.errors import InputError
from vepm.evaluation import HERE, Compute, run_jobs
from vepm.paper.cells import Cell, copy_cell, read_cell, write_cell
from vepm.paper.performing import Ending, batches_of, open_dataset, perform_batch
from vepm.paper.square import Square

Progress = Callable[[int, int, str], None]  # told runs done, runs in all, and which was last


@dataclass
class Ended:
    """What came of running squares."""

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
    # By dataset, so that few are loaded at a time.
    for group in sorted(groups.values(), key=lambda group: group[0].task.dataset):
        if group[0].task.dataset in ended.missing:
            continue
        if _reuse(group, shelf[group[0].task.fingerprint], folder):
            ended.found += len(group)
        else:
            todo.append(group)
    tasks, done = [group[0].task for group in todo], itertools.count(1)

    def keep(i: int, ending: Ending) -> str:
        """Write the cells of a task; gives why it failed, if it did."""
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
