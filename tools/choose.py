"""Results of the partition ``"auto"`` from the records of what it chooses from.

    python -m tools.choose panel hidden-relations --data-dir data

``"auto"`` keeps the best of separate trainings by validation labels, equal to them in every bit
(tests/training/test_choice.py), so a run that is on record need not be repeated.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vepm.errors import InputError
from vepm.paper.cells import Cell, Record, Task, copy_cell, read_cell
from vepm.paper.experiments import FOLDER, Experiment, catalogue
from vepm.paper.plan import EVERY_PRESET, squares
from vepm.paper.runner import _prepare
from vepm.training import Run
from vepm.training.config import recorded
from vepm.training.fitting import _candidates

FINGERPRINT = re.compile(r'"fingerprint": "(\w+)"')


def main(
    names: list[str],
    output: Path = Path("results"),
    data_dir: Annotated[Path | None, typer.Option(envvar="VEPM_DATA")] = None,
    experiments: Path = FOLDER,
) -> None:
    """Write the cells of ``"auto"`` in these experiments anew."""
    shelf: dict[str, Path] = {}
    for path in output.glob("*/cells/**/*.json"):
        if own := FINGERPRINT.search(path.read_text(encoding="utf-8")):
            shelf.setdefault(own[1], path)
    known = catalogue(experiments)
    for cell in auto_cells([known[name] for name in names]):
        if (best := best_of(cell.task, shelf, data_dir)) is not None:
            copy_cell(best, output, cell)
            typer.echo(f"{cell.path}: {best.path}")


def auto_cells(experiments: list[Experiment]) -> list[Cell]:
    """Cells of the partition ``"auto"``."""
    found = [square for one in experiments for square in squares(one, presets=EVERY_PRESET)]
    cells = [cell for square in found if square.method == "vepm" for cell in square.cells]
    return [cell for cell in cells if cell.task.config.model.partition == "auto"]


def best_of(task: Task, shelf: dict[str, Path], root: Path | None) -> Record | None:
    """The record that ``"auto"`` would keep; None if data or one of the records are missing."""
    try:
        dataset, [(split, seed)] = _prepare([task], root)
    except InputError:
        return None  # the data are not at hand
    run, records = Run(split.train, split.val, split.test, seed), list[Record]()
    for changes in _candidates(dataset, task.config, run).values():
        settings = recorded(task.config.replace(**changes))
        own = replace(task, settings=settings).fingerprint
        record = read_cell(shelf[own], own) if own in shelf else None
        if record is None or record.result is None:
            return None
        records.append(record)
    return max(records, key=validated)


def validated(record: Record) -> tuple[float, float]:
    """What decides: validation accuracy at the best epoch, of equals the lower loss."""
    assert record.result is not None
    epoch = record.result.best_epoch
    return record.result.curve["val_accuracy"][epoch], -record.result.curve["val_loss"][epoch]


if __name__ == "__main__":
    typer.run(main)
