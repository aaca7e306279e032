"""Many runs at a time on one machine."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from itertools import product

import torch
from joblib import Parallel, delayed

from vepm.data import Dataset
from vepm.evaluation.evaluation import Cell, Method, Progress, Stackable, evaluate
from vepm.evaluation.results import RunResult
from vepm.evaluation.splits import Split
from vepm.training.ranks import all_ranks, from_all_ranks, rank_and_world


def evaluate_in_parallel(
    method: Method,
    dataset: Dataset,
    splits: Sequence[Split],
    seeds: Iterable[int] = (0,),
    jobs: int = 0,
    progress: Progress | None = None,
    together: int = 0,
    shared: bool = False,
) -> list[RunResult]:
    """:func:`evaluate` with several runs at a time, one thread each.

    Runs on their own give the results of running one after the other; those of runs together
    are distributed alike.

    Args:
        method: what to measure.
        dataset: what to measure it on.
        splits: for example those of :func:`gin_folds`.
        seeds: of the method.
        jobs: processes; 0 takes one per core, or one in all where a GPU does the work.
        progress: called after each run.
        together: runs that a process trains as one program, where the method can; 0 takes as many
            as pays: all on a GPU, one on a CPU.
        shared: share the runs out over the processes of torchrun, each of which gets the results
            of all.
    """
    cells = list(product(splits, seeds))
    return evaluate_cells(method, dataset, cells, jobs, progress, together, shared)


def evaluate_cells(
    method: Method,
    dataset: Dataset,
    cells: Sequence[Cell],
    jobs: int = 0,
    progress: Progress | None = None,
    together: int = 0,
    shared: bool = False,
) -> list[RunResult]:
    """The same for pairs of a split and a seed, not all of which need be there."""
    rank, world = rank_and_world() if shared else (0, 1)
    if jobs == 0:
        jobs = 1 if world > 1 or torch.cuda.is_available() else len(os.sched_getaffinity(0))
    bundles = [[i] for i in range(len(cells))]
    if isinstance(method, Stackable):
        bundles = method.bundles(dataset, cells, together)
    with all_ranks() if shared else contextlib.nullcontext():
        own = _run(method, dataset, cells, bundles[rank::world], jobs, progress)
        results = {i: r for part in (from_all_ranks(own) if shared else [own]) for i, r in part}
    return [results[i] for i in range(len(cells))]


def _run(
    method: Method,
    dataset: Dataset,
    cells: Sequence[Cell],
    bundles: list[list[int]],
    jobs: int,
    progress: Progress | None,
) -> list[tuple[int, RunResult]]:
    """Numbers and results of the cells in some bundles."""
    run = delayed(_one_thread)
    found = Parallel(n_jobs=max(1, min(jobs, len(bundles))), return_as="generator")(
        run(method, dataset, [cells[i] for i in bundle]) for bundle in bundles
    )
    results: list[tuple[int, RunResult]] = []
    total = sum(len(bundle) for bundle in bundles)
    for bundle, finished in zip(bundles, found, strict=True):
        for i, result in zip(bundle, finished, strict=True):
            results.append((i, result))
            if progress is not None:
                progress(len(results), total, result)
    return results


def _one_thread(method: Method, dataset: Dataset, cells: list[Cell]) -> list[RunResult]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if isinstance(method, Stackable):
            return method.together(dataset, cells)
        return [evaluate(method, dataset, [split], [seed])[0] for split, seed in cells]
    finally:
        torch.set_num_threads(before)
