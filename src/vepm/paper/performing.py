"""Doing the work of cells: their data, a method or study, and what it finds."""

import contextlib
import functools
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sklearn.model_selection import StratifiedKFold

from vepm.baselines import BASELINES, baseline
from vepm.data import Dataset, load
from vepm.evaluation import Compute, Split, VEPMMethod, keep_labels, protocol_named
from vepm.paper.cells import Finding, Setting, Task
from vepm.paper.studies import STUDIES, WHOLE
from vepm.training import pick_device

QUICK_GRAPHS = 40  # of a dataset, at least, in a quick run
FAILURES = (ValueError, RuntimeError, ArithmeticError, LookupError)  # which stop no other run

Ending = tuple[Finding, float] | str  # what a run found and its seconds, or why it failed


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
        # Whichever cannot be prepared says so when its turn comes.
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
    """The data of tasks that differ in split and seed alone, and those of each."""
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
