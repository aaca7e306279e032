"""Several runs at a time give the numbers of one after the other."""

from dataclasses import replace

import pytest
import torch

from training.toys import SMALL, toy
from vepm.baselines import baseline
from vepm.data import planted_graph
from vepm.errors import InputError
from vepm.evaluation import (
    Method,
    RunResult,
    VEPMMethod,
    evaluate,
    evaluate_in_parallel,
    gin_folds,
    public_split,
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

    found = evaluate_in_parallel(method, dataset, splits, [3, 1], jobs, progress)
    one_by_one = evaluate(method, dataset, splits, [3, 1])
    assert timeless(found) == timeless(one_by_one)
    assert [(result.split, result.seed) for result in found] == [
        (split.name, seed) for split in splits for seed in (3, 1)
    ]
    count = 2 * len(splits)
    assert seen == [(i + 1, count, result) for i, result in enumerate(found)]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_runs_together_are_told_and_ordered_as_ever(task: str, jobs: int) -> None:
    dataset = toy(task)
    splits = [public_split(dataset)] if task == "node" else gin_folds(dataset, num_folds=3)
    config = SMALL[task].replace(epochs=2, pretrain_epochs=0, sampling=False, dropout=0.0)
    method = VEPMMethod(config, "cpu")
    seen: list[tuple[int, int, RunResult]] = []

    def progress(done: int, total: int, result: RunResult) -> None:
        seen.append((done, total, result))

    found = evaluate_in_parallel(method, dataset, splits, [3, 1], jobs, progress, together=4)
    alone = evaluate(method, dataset, splits, [3, 1])
    assert seen == [(i + 1, len(found), result) for i, result in enumerate(found)]
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


def test_noise_tells_runs_together_from_runs_alone() -> None:
    dataset, splits = toy("node"), [public_split(toy("node"))]
    method = VEPMMethod(SMALL["node"].replace(epochs=1), "cpu")
    curves = [
        [r.curve for r in evaluate_in_parallel(method, dataset, splits, range(2), 1, None, n)]
        for n in (0, 1, 2)
    ]
    assert curves[0] == curves[1] != curves[2]


def test_baselines_too() -> None:
    dataset = planted_graph(60, 2, seed=0)
    method: Method = baseline("gcn", epochs=5)
    splits = [public_split(dataset)]
    found = evaluate_in_parallel(method, dataset, splits, range(2), jobs=2)
    assert timeless(found) == timeless(evaluate(method, dataset, splits, range(2)))


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_a_run_refuses_is_refused(jobs: int) -> None:
    dataset = toy("graph")
    splits = gin_folds(dataset, num_folds=3)
    with pytest.raises(InputError, match="for node tasks"):
        evaluate_in_parallel(baseline("gcn"), dataset, splits, jobs=jobs)


def test_threads_are_as_before() -> None:
    before = torch.get_num_threads()
    dataset = toy("node")
    method = VEPMMethod(SMALL["node"].replace(epochs=1), "cpu")
    torch.set_num_threads(2)
    try:
        evaluate_in_parallel(method, dataset, [public_split(dataset)], jobs=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
