"""Several runs at a time give the numbers of one after the other; lost processes are reported."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.toys import SMALL, toy
from vepm.baselines import baseline
from vepm.data import planted_graph
from vepm.errors import InputError, LostProcessError
from vepm.evaluation import (
    HERE,
    Compute,
    Method,
    RunResult,
    VEPMMethod,
    evaluate,
    executor,
    gin_folds,
    public_split,
    run_jobs,
)


def timeless(results: list[RunResult]) -> list[RunResult]:
    return [replace(result, seconds=0.0) for result in results]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_results_are_those_of_one_after_the_other(task: str, jobs: int) -> None:
    dataset = toy(task)
    splits = [public_split(dataset)] if task == "node" else gin_folds(dataset, num_folds=3)
    method = VEPMMethod(SMALL[task].replace(epochs=3), "cpu")
    seen: list[tuple[int, int, RunResult]] = []

    def progress(done: int, total: int, result: RunResult) -> None:
        seen.append((done, total, result))

    found = evaluate(method, dataset, splits, [3, 1], progress, Compute("cpu", jobs))
    one_by_one = [method(dataset, split, seed) for split in splits for seed in (3, 1)]
    assert timeless(found) == timeless(one_by_one)
    assert len({tuple(result.curve["train_loss"]) for result in found}) == len(found)
    assert [(done, total) for done, total, _ in seen] == [
        (i + 1, len(found)) for i in range(len(found))
    ]
    assert sorted(map(id, found)) == sorted(id(result) for _, _, result in seen)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_batched_runs_are_reported_and_ordered_alike(task: str, jobs: int) -> None:
    dataset = toy(task)
    splits = [public_split(dataset)] if task == "node" else gin_folds(dataset, num_folds=3)
    config = SMALL[task].replace(epochs=2, pretrain_epochs=0, sampling=False, dropout=0.0)
    method = VEPMMethod(config, "cpu")
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int, result: RunResult) -> None:
        seen.append((done, total))

    found = evaluate(method, dataset, splits, [3, 1], progress, Compute("cpu", jobs, 4))
    alone = evaluate(method, dataset, splits, [3, 1])
    assert seen == [(i + 1, len(found)) for i in range(len(found))]
    for ours, theirs in zip(found, alone, strict=True):
        assert (ours.split, ours.seed, ours.settings) == (
            theirs.split,
            theirs.seed,
            theirs.settings,
        )
        # Rounding grows from step to step: the first is where they must still agree.
        first, other = ours.curve["train_loss"][0], theirs.curve["train_loss"][0]
        assert first == pytest.approx(other, rel=1e-4)
    shared = {result.seconds for result in found}
    assert len(shared) == (1 if task == "node" else 2)


def test_batched_runs_draw_other_random_numbers() -> None:
    dataset, splits = toy("node"), [public_split(toy("node"))]
    method = VEPMMethod(SMALL["node"].replace(epochs=1), "cpu")
    curves = [
        [r.curve for r in evaluate(method, dataset, splits, range(2), None, Compute("cpu", 1, n))]
        for n in (0, 1, 2)
    ]
    assert curves[0] == curves[1] != curves[2]


def test_baselines_too() -> None:
    dataset = planted_graph(60, 2, seed=0)
    method: Method = baseline("gcn", epochs=5)
    splits = [public_split(dataset)]
    found = evaluate(method, dataset, splits, range(2), compute=Compute("cpu", 2))
    assert timeless(found) == timeless(evaluate(method, dataset, splits, range(2)))


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_of_a_run_are_passed_on(jobs: int) -> None:
    dataset = toy("graph")
    splits = gin_folds(dataset, num_folds=3)
    with pytest.raises(InputError, match="labels nodes"):
        evaluate(baseline("gcn"), dataset, splits, compute=Compute("cpu", jobs))


def threads_of(_: list[int]) -> list[tuple[int, bool]]:
    return [(torch.get_num_threads(), os.getpid() == PARENT)]


PARENT = os.getpid()


def test_jobs_share_the_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    try:
        alone = run_jobs(threads_of, [0], Compute("cpu", 4), lambda _, found: found)
        both = run_jobs(threads_of, [0, 1], Compute("cpu", 2), lambda _, found: found)
        assert torch.get_num_threads() == 5
    finally:
        torch.set_num_threads(before)
    assert alone == [(5, True)]
    assert [threads for threads, _ in both] == [2, 2]


def test_device_decides_how_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    assert Compute("cpu").workers(10) == 6
    assert Compute("auto").workers(10) == 1
    assert Compute("auto", jobs=3).workers(10) == 3
    assert Compute("cpu").workers(2) == 2
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert Compute("cpu").workers(10) == 1


def killed(jobs: list[int]) -> list[int]:
    if 1 in jobs:
        os.kill(os.getpid(), signal.SIGKILL)
    return jobs


def test_a_killed_worker_takes_one_line() -> None:
    with pytest.raises(LostProcessError, match="one of 2 worker processes was killed") as caught:
        run_jobs(killed, [0, 1, 2], Compute("cpu", 2), lambda _, found: found)
    assert caught.value.__suppress_context__
    # The next call starts fresh workers.
    assert run_jobs(killed, [0, 2], Compute("cpu", 2), lambda _, found: found) == [0, 2]


def touch_again_and_again(folder: Path, jobs: list[int]) -> list[int]:
    while True:
        (folder / f"{os.getpid()}-{jobs[0]}").write_text(str(time.time()))
        time.sleep(0.05)


ORPHANS = """
import functools, sys
from pathlib import Path
from evaluation.test_executor import touch_again_and_again
from vepm.evaluation import Compute, run_jobs
work = functools.partial(touch_again_and_again, Path(sys.argv[1]))
run_jobs(work, [0, 1], Compute("cpu", 2), lambda _, found: found)
"""


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[1])
    paths = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", ORPHANS, str(tmp_path)]
    parent = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths})
    deadline = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2:
        assert parent.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    workers = [int(path.name.partition("-")[0]) for path in tmp_path.iterdir()]
    assert parent.pid not in workers
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline, "workers outlived their parent"
        time.sleep(0.1)


@pytest.mark.parametrize("heir", [1, 99])
def test_workers_look_for_their_parent_twice_a_second(
    heir: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))
    executor._start_worker(50, torch.get_num_threads())
    (thread,) = started
    # A worker that is no longer needed ends although its parent does not.
    assert thread.daemon

    def end(code: int) -> None:
        raise SystemExit(code)

    parents, waited = iter([50, 50, heir]), list[float]()
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(SystemExit) as ended:
        thread.run()
    assert (ended.value.code, waited) == (1, [0.5, 0.5])


def double(jobs: list[int]) -> list[int]:
    return [2 * job for job in jobs]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_kept_comes_in_order(jobs: int) -> None:
    indices: list[int] = []

    def keep(index: int, found: int) -> str:
        indices.append(index)
        return f"{index}: {found}"

    kept = run_jobs(double, [5, 6, 7], Compute("cpu", jobs), keep)
    assert kept == ["0: 10", "1: 12", "2: 14"]
    assert sorted(indices) == [0, 1, 2]
    assert run_jobs(double, [], HERE, keep) == []
    assert run_jobs(double, [5, 6, 7], HERE, lambda _, one: one, [[2, 0], [1]]) == [10, 12, 14]


def test_runs_of_a_batch_share_its_time_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 16.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr("vepm.training.fit_many", lambda *_, **__: list("abcd"))
    monkeypatch.setattr(executor, "result_of", lambda one, *_: (one, _[-1]))
    dataset = toy("node")
    cells = [(public_split(dataset), seed) for seed in range(4)]
    found: list[object] = [*VEPMMethod(SMALL["node"], "cpu").train_batch(dataset, cells)]
    assert found == [(one, 1.5) for one in "abcd"]


def test_one_worker_is_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "Parallel", None)
    for compute in (HERE, Compute("cpu", jobs=1)):
        assert run_jobs(double, [5, 6], compute, lambda _, one: one) == [10, 12]
    assert run_jobs(double, [5], Compute("cpu", jobs=2), lambda _, one: one) == [10]
