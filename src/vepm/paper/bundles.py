"""Tasks that differ in split and seed alone, trained as one program."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vepm.data import Dataset
from vepm.evaluation import Cell, VEPMMethod
from vepm.paper.tasks import Outcome, Task, perform, prepare
from vepm.training import Config, pick_device


def bundle(tasks: Sequence[Task], root: Path | None, device: str, together: int) -> list[list[int]]:
    """Numbers of the tasks to carry out together.

    Args:
        tasks: all of them.
        root: PyG root of the data.
        device: where to compute.
        together: at most so many; 0 for as many as pays.
    """
    if together == 1 or (together == 0 and pick_device(device).type == "cpu"):
        return [[i] for i in range(len(tasks))]
    kin: dict[str, list[int]] = {}
    for i, task in enumerate(tasks):
        alike = replace(task, split=0, seed=0) if task.method == "vepm" else task
        kin.setdefault(alike.fingerprint, []).append(i)
    found = []
    for numbers in kin.values():
        if len(numbers) == 1:
            found.append(numbers)
            continue
        method, dataset, cells = _together([tasks[i] for i in numbers], root, device)
        parts = method.bundles(dataset, cells, together)
        found += [[numbers[i] for i in part] for part in parts]
    return found


def perform_together(tasks: Sequence[Task], root: Path | None, device: str) -> list[Outcome]:
    """Carry the tasks of one bundle out."""
    if len(tasks) == 1:
        return [perform(tasks[0], root, device)]
    method, dataset, cells = _together(tasks, root, device)
    return [Outcome(result) for result in method.together(dataset, cells)]


def _together(
    tasks: Sequence[Task], root: Path | None, device: str
) -> tuple[VEPMMethod, Dataset, list[Cell]]:
    method = VEPMMethod(Config.from_dict(dict(tasks[0].settings)), device)
    prepared = [prepare(task, root) for task in tasks]
    dataset = prepared[0][0]
    return method, dataset, [(s, t.seed) for (_, s), t in zip(prepared, tasks, strict=True)]
