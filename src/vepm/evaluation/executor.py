"""Running methods over splits and seeds, and the one executor of jobs behind it."""

import contextlib
import functools
import itertools
import os
import threading
import time
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TypeVar

import torch
from joblib import Parallel, delayed

from vepm import training
from vepm.data import Dataset
from vepm.data.canonical import canonical_kinds
from vepm.errors import LostProcessError
from vepm.evaluation.results import RunResult
from vepm.evaluation.splits import Split
from vepm.measures import accuracy, agreement_with_kinds, class_measures
from vepm.scale.ddp import ProcessGroup, own_device, process_group, rank_and_world
from vepm.training import Config, Fitted, Run, pick_device

SECONDS_BETWEEN_LOOKS = 0.5

Job = TypeVar("Job")
Result = TypeVar("Result")
Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Compute:
    """Where jobs run and how many at a time.

    Worker processes: 0 ``jobs`` takes one per core, or one in all if a GPU does the work or
    torchrun has started several processes. A process trains ``runs_at_once`` as one batch, where
    the method can; 0 takes as many as is useful: all that fit on a GPU, one on a CPU.
    """

    device: str = "auto"
    jobs: int = 0
    runs_at_once: int = 0
    shared: bool = False  # whether the jobs are divided among the processes of torchrun

    @property
    def own_device(self) -> str:
        """The device of this process; torchrun's processes have a GPU each."""
        return own_device(self.device)

    @property
    def leads(self) -> bool:
        """Whether this is the one process that prints and holds locks."""
        return rank_and_world()[0] == 0

    def workers(self, count: int) -> int:
        """How many processes to use for this many jobs."""
        alone = rank_and_world()[1] > 1 or pick_device(self.device).type != "cpu"
        jobs = self.jobs or (1 if alone else len(os.sched_getaffinity(0)))
        return max(1, min(jobs, count))


HERE = Compute(jobs=1)
"""One job after the other in this process, with all of its threads."""


def run_jobs(
    work: Callable[[list[Job]], list[Result]],
    jobs: Sequence[Job],
    compute: Compute,
    keep: Callable[[int, Result], Kept],
    batches: Sequence[Sequence[int]] | None = None,
) -> list[Kept]:
    """Run every job, possibly in worker processes, which share the threads of this one evenly.

    ``work`` is given the jobs of a batch, whose indices are in ``batches``; by default one each.
    ``keep`` is called in this process with the index and result of each job as it ends. Whatever is
    written belongs there: a worker that outlives this process for a moment must not write. What it
    returned for each job is returned in order; with ``compute.shared``, from all processes.
    """
    rank, world = rank_and_world() if compute.shared else (0, 1)
    own = ([[i] for i in range(len(jobs))] if batches is None else batches)[rank::world]
    kept: dict[int, Kept] = {}
    with process_group() if compute.shared else contextlib.nullcontext(ProcessGroup()) as group:
        for place, results in _run(work, [[jobs[i] for i in batch] for batch in own], compute):
            kept |= {i: keep(i, one) for i, one in zip(own[place], results, strict=True)}
        found = ChainMap(*group.from_all(kept))
    return [found[i] for i in range(len(jobs))]


def _run(
    work: Callable[[Job], Result], jobs: Sequence[Job], compute: Compute
) -> Iterator[tuple[int, Result]]:
    """Results with the places of their jobs, in the order in which they end."""
    workers = compute.workers(len(jobs))
    if workers == 1:
        yield from ((place, work(job)) for place, job in enumerate(jobs))
        return
    threads = max(1, torch.get_num_threads() // workers)
    start = {"initializer": _start_worker, "initargs": (os.getpid(), threads)}
    pool = Parallel(workers, return_as="generator_unordered", batch_size=1, **start)
    run = delayed(lambda place, job: (place, work(job)))
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


def _start_worker(parent: int, threads: int) -> None:
    """End this worker soon after its parent: nobody is left to take its results."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    torch.set_num_threads(threads)
    threading.Thread(target=watch, daemon=True).start()


COLUMNS = ("val_accuracy", "val_loss", "test_accuracy", "loss")

Cell = tuple[Split, int]
"""A split and a seed."""
Method = Callable[[Dataset, Split, int], RunResult]
"""Anything that can be measured: it trains on ``split.train`` with a seed, and scores, but never
learns from, ``split.test``."""
Progress = Callable[[int, int, RunResult], None]


@dataclass(frozen=True)
class VEPMMethod:
    """Train VEPM with given settings; accuracies are those of the posterior mean."""

    config: Config
    device: str = "auto"

    def __call__(self, dataset: Dataset, split: Split, seed: int) -> RunResult:
        """Train on ``split.train``, choose on ``split.val``, watch ``split.test``."""
        return self.train_batch(dataset, [(split, seed)])[0]

    def batches(self, dataset: Dataset, cells: Sequence[Cell], most: int) -> list[list[int]]:
        """Indices of the runs of each batch; ``most`` of 0 takes as many as is useful."""
        most = most or training.most_runs_at_once(dataset, self.config, self.device)
        return training.group_runs(dataset, self.config, _runs(cells), most)

    def train_batch(self, dataset: Dataset, cells: Sequence[Cell]) -> list[RunResult]:
        """Train the runs of one batch; each takes an equal share of the time."""
        started, runs = time.perf_counter(), _runs(cells)
        fitted = training.fit_many(dataset, self.config, runs, self.device, calibrated=False)
        seconds = (time.perf_counter() - started) / len(cells)
        pairs = zip(cells, fitted, strict=True)
        return [result_of(one, dataset, split, seconds) for (split, _), one in pairs]


def _runs(cells: Sequence[Cell]) -> list[Run]:
    return [Run(split.train, split.val, split.test, seed) for split, seed in cells]


def result_of(fitted: Fitted, dataset: Dataset, split: Split, seconds: float) -> RunResult:
    """The result of a training of VEPM on a split.

    Its measures are those of the test part at the posterior mean, its accuracy by draws, and how
    well the parts of the edges match their kinds, where the data know them and the model does not.
    """
    card, y = fitted.card, dataset.labels[split.test]
    found = training.probabilities(fitted.model, fitted.source).cpu()[split.test]
    measures = class_measures(found, y)
    if samples := card.config.training.num_samples:
        drawn = training.probabilities(fitted.model, fitted.source, samples, card.seed)
        measures["sampled_accuracy"] = accuracy(drawn.cpu()[split.test], y)
    if dataset.kind_names and card.config.model.partition == "learned":
        parts, graph = training.explain(fitted.model, fitted.source), dataset.graphs[0]
        # The split has both directions of every edge, a directed graph may have one.
        kinds = canonical_kinds(parts.edge_index.cpu(), graph.edge_index, graph.edge_kind)
        by_kind = agreement_with_kinds(parts.edge_weight.cpu(), kinds)
        measures["parts_by_kind"], measures["kind_ranking"] = by_kind
    curve = {n: [row[n] for row in fitted.finetuned if n in row] for n in COLUMNS}
    curve["train_loss"] = curve.pop("loss")
    named = ("vepm", dataset.name, split.name, card.seed)
    return RunResult.from_curve(*named, curve, seconds, card.config.to_dict(), measures)


def evaluate(
    method: Method,
    dataset: Dataset,
    splits: Iterable[Split],
    seeds: Iterable[int] = (0,),
    progress: Progress | None = None,
    compute: Compute = HERE,
) -> list[RunResult]:
    """Run a method on every split with every seed; the results are in this order.

    By default the runs are one after the other in this process. Those in worker processes give the
    same results on as many threads; those trained as one batch draw other random numbers of the
    same distribution. ``progress`` is told how many are done, how many there are, and the last.

    Example:
        >>> from vepm.baselines import baseline
        >>> from vepm.data import planted_graph
        >>> from vepm.evaluation import evaluate, public_split, summarise
        >>> dataset = planted_graph(200, 2, seed=0)
        >>> results = evaluate(baseline("gcn"), dataset, [public_split(dataset)], seeds=range(3))
        >>> summarise(results, "validation").n
        3
    """
    cells, batches, done = list(itertools.product(splits, seeds)), None, itertools.count(1)
    work: Callable[[list[Cell]], list[RunResult]] = functools.partial(_run_each, method, dataset)
    if isinstance(method, VEPMMethod):
        work = functools.partial(method.train_batch, dataset)
        batches = method.batches(dataset, cells, compute.runs_at_once)

    def keep(_: int, result: RunResult) -> RunResult:
        if progress is not None:
            progress(next(done), len(cells), result)
        return result

    return run_jobs(work, cells, compute, keep, batches)


def _run_each(method: Method, dataset: Dataset, cells: Sequence[Cell]) -> list[RunResult]:
    return [method(dataset, split, seed) for split, seed in cells]
