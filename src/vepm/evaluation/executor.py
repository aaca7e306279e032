"""The one executor of jobs: worker processes, the processes of torchrun, a GPU's one process."""

import contextlib
import functools
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TypeVar

import torch
from joblib import Parallel, delayed

from vepm.errors import LostProcessError
from vepm.scale.ddp import ProcessGroup, own_device, process_group, rank_and_world
from vepm.training import pick_device

SECONDS_BETWEEN_LOOKS = 0.5

Job = TypeVar("Job")
Result = TypeVar("Result")
Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Compute:
    """Where jobs run and how many at a time.

    Args:
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        jobs: worker processes; 0 takes one per core, or one in all if a GPU does the work or
            torchrun has started several processes.
        runs_at_once: runs that a process trains as one batch, where the method can; 0 takes as
            many as pays: all that a GPU holds, one on a CPU.
        shared: divide the jobs among the processes of torchrun.

    Example:
        >>> from vepm.evaluation import Compute
        >>> Compute("cpu", jobs=8).workers(3)
        3
    """

    device: str = "auto"
    jobs: int = 0
    runs_at_once: int = 0
    shared: bool = False

    @property
    def own_device(self) -> str:
        """The device of this process; torchrun's processes have a GPU each."""
        return own_device(self.device)

    @property
    def leads(self) -> bool:
        """Whether this is the one process that prints and holds locks."""
        return rank_and_world()[0] == 0

    def workers(self, count: int) -> int:
        """How many processes to use for so many jobs."""
        jobs = self.jobs
        if jobs == 0:
            alone = rank_and_world()[1] > 1 or pick_device(self.device).type != "cpu"
            jobs = 1 if alone else len(os.sched_getaffinity(0))
        return max(1, min(jobs, count))


HERE = Compute(jobs=1)
"""One job after the other in this process, with all of its threads."""


def run_jobs(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    compute: Compute,
    keep: Callable[[int, Result], Kept],
) -> list[Kept]:
    """Run every job, perhaps in other processes, which share the threads of this one evenly.

    ``keep`` is called in this process with the index and result of each job as it ends. Whatever is
    written belongs there: a worker that outlives this process for a moment must not write. What it
    returned for each job is returned in order; with ``compute.shared``, that of all processes.

    Raises:
        LostProcessError: if a worker was killed.
    """
    rank, world = rank_and_world() if compute.shared else (0, 1)
    own = range(rank, len(jobs), world)
    with process_group() if compute.shared else contextlib.nullcontext(ProcessGroup()) as group:
        ended = _run(work, [jobs[i] for i in own], compute)
        kept = {own[place]: keep(own[place], result) for place, result in ended}
        parts = group.from_all(kept)
    everything = {index: found for part in parts for index, found in part.items()}
    return [everything[index] for index in range(len(jobs))]


def _run(
    work: Callable[[Job], Result], jobs: Sequence[Job], compute: Compute
) -> Iterator[tuple[int, Result]]:
    workers = compute.workers(len(jobs))
    if workers == 1:
        yield from ((place, work(job)) for place, job in enumerate(jobs))
        return
    threads = max(1, torch.get_num_threads() // workers)
    run = delayed(functools.partial(_in_worker, work, threads, os.getpid()))
    pool = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)
    try:
        with warnings.catch_warnings():
            # joblib replaces processes that have grown by fresh ones; no result is lost.
            warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
            yield from pool(run(place, job) for place, job in enumerate(jobs))
    except BrokenProcessPool:
        raise LostProcessError(
            f"one of {workers} worker processes was killed, perhaps for lack of memory; try again "
            "with a lower --jobs"
        ) from None


def _in_worker(
    work: Callable[[Job], Result], threads: int, parent: int, place: int, job: Job
) -> tuple[int, Result]:
    _end_with(parent)
    torch.set_num_threads(threads)
    return place, work(job)


@functools.cache
def _end_with(parent: int) -> None:
    """End this process soon after its parent: there is nobody left to take its results."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
