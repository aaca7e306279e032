"""Many runs at a time on one machine."""

import os
from collections.abc import Iterable, Sequence
from itertools import product

import torch
from joblib import Parallel, delayed

from vepm.data import Dataset
from vepm.protocols.evaluation import Method, Progress, evaluate
from vepm.protocols.results import RunResult
from vepm.protocols.splits import Split


def evaluate_in_parallel(
    method: Method,
    dataset: Dataset,
    splits: Sequence[Split],
    seeds: Iterable[int] = (0,),
    jobs: int = 0,
    progress: Progress | None = None,
) -> list[RunResult]:
    """:func:`evaluate` with several runs at a time, one thread each.

    Every run is on its own, so the results are those of running one after the other.

    Args:
        method: what to measure.
        dataset: what to measure it on.
        splits: for example those of :func:`gin_folds`.
        seeds: of the method.
        jobs: processes; 0 takes one per core, or one in all where a GPU does the work.
        progress: called after each run.
    """
    cells = list(product(splits, seeds))
    if jobs == 0:
        jobs = 1 if torch.cuda.is_available() else len(os.sched_getaffinity(0))
    run = delayed(_one_thread)
    found = Parallel(n_jobs=min(jobs, len(cells)), return_as="generator")(
        run(method, dataset, split, seed) for split, seed in cells
    )
    results: list[RunResult] = []
    for result in found:
        results.append(result)
        if progress is not None:
            progress(len(results), len(cells), result)
    return results


def _one_thread(method: Method, dataset: Dataset, split: Split, seed: int) -> RunResult:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return evaluate(method, dataset, [split], [seed])[0]
    finally:
        torch.set_num_threads(before)
