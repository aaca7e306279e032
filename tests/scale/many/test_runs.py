"""Runs together: what differs, what does not, and which may go together."""

import dataclasses
import statistics
from typing import Any

import pytest
import torch

from training.toys import SMALL, TASKS, rng_untouched, run, same_run, toy
from vepm.data import planted_graph
from vepm.errors import InputError
from vepm.evaluation import public_split
from vepm.training import Fitted, Run, fit_many, group_runs, loop, most_runs_at_once, sources

from .doubles import quiet, runs_of, separately


@pytest.mark.parametrize("task", TASKS)
def test_one_run_is_that_of_fit(task: str) -> None:
    train, val, test = (runs_of(task)[0])[:3]
    alone = run(task, train_on=train, validate_on=val, watch=test, seed=5)
    (found,) = fit_many(toy(task), SMALL[task], [Run(train, val, test, 5)], "cpu")
    assert same_run(found, alone)


@pytest.mark.parametrize("task", TASKS)
def test_the_same_again(task: str) -> None:
    settings: Any = {"epochs": 2, "pretrain_epochs": 1}
    settings["batch_size"] = 3 if task == "graph" else 0
    config = SMALL[task].replace(**settings)
    with rng_untouched():
        first, second = (fit_many(toy(task), config, runs_of(task), "cpu") for _ in "12")
    assert all(same_run(a, b) for a, b in zip(first, second, strict=True))


def test_runs_of_one_seed_on_one_graph_are_pretrained_as_each_would_be_alone() -> None:
    settings: Any = {"epochs": 2, "pretrain_epochs": 4, "sampling": True}
    config = SMALL["node"].replace(**settings)
    splits = [own._replace(seed=3) for own in runs_of("node")]
    together = fit_many(toy("node"), config, splits, "cpu")
    for found, alone in zip(together, separately(toy("node"), config, splits), strict=True):
        first, second = (
            [row["loss"] for row in fitted.history if row["phase"] == "pretrain"]
            for fitted in (found, alone)
        )
        assert first == second
        assert len(found.history) == len(alone.history) == 6


@pytest.mark.parametrize("noise", [{"sampling": True}, {"dropout": 0.5}, {"node_dropout": 0.5}])
@pytest.mark.parametrize("task", TASKS)
def test_replicas_draw_their_own_noise(task: str, noise: dict[str, Any]) -> None:
    twins = [runs_of(task)[0]] * 2
    first, second = fit_many(toy(task), quiet(task).replace(**noise), twins, "cpu")
    assert first.history[-1]["loss"] != second.history[-1]["loss"]


@pytest.mark.parametrize("task", TASKS)
def test_twins_without_noise_stay_twins(task: str) -> None:
    twins = [runs_of(task)[0]] * 2
    first, second = fit_many(toy(task), quiet(task), twins, "cpu")
    ours, theirs = (one.history[1]["loss"] for one in (first, second))
    assert ours == pytest.approx(theirs, rel=1e-4)


def test_losses_with_noise_are_distributed_as_those_of_separate_runs() -> None:
    dataset = planted_graph(80, 2, num_features=4, seed=1)
    split = public_split(dataset)
    config = SMALL["node"].replace(epochs=6, pretrain_epochs=4)
    runs = [Run(split.train, split.val, split.test, seed) for seed in range(12)]
    pairs = zip(
        fit_many(dataset, config, runs, "cpu"), separately(dataset, config, runs), strict=True
    )
    # The same starting weights on both sides: the pairs differ by noise alone.
    gaps = [_late_loss(ours) - _late_loss(theirs) for ours, theirs in pairs]
    error = statistics.stdev(gaps) / len(gaps) ** 0.5
    assert error > 0
    assert abs(statistics.mean(gaps)) < 4 * error


def _late_loss(fitted: Fitted) -> float:
    return statistics.mean(row["val_loss"] for row in fitted.history[-3:])


def test_what_diverges_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PRETRAIN_LEARNING_RATE", 1e30)
    config = SMALL["node"]
    with pytest.raises(InputError, match="training diverged"):
        fit_many(toy("node"), config, runs_of("node"), "cpu")


def test_runs_of_equally_many_steps_go_together() -> None:
    node, graph = toy("node"), toy("graph")
    assert group_runs(node, SMALL["node"], runs_of("node"), 64) == [[0, 1, 2]]
    assert group_runs(node, SMALL["node"], runs_of("node"), 2) == [[0, 1], [2]]
    assert group_runs(node, SMALL["node"], runs_of("node"), 1) == [[0], [1], [2]]
    short = [_trained_on(run, n) for run, n in zip(runs_of("node"), (4, 5, 4), strict=True)]
    assert group_runs(node, SMALL["node"], short, 64) == [[0, 2], [1]]
    folds = [_trained_on(run, n) for run, n in zip(runs_of("graph"), (4, 5, 3), strict=True)]
    assert group_runs(graph, SMALL["graph"].replace(batch_size=2), folds, 64) == [[0, 2], [1]]
    assert group_runs(graph, SMALL["graph"], folds, 64) == [[0, 1, 2]]


def _trained_on(run: Run, count: int) -> Run:
    return run._replace(train_on=torch.arange(count))


@pytest.mark.parametrize("task", TASKS)
def test_what_cannot_be_shared_stays_alone(task: str) -> None:
    config = SMALL[task].replace(likelihood="subsampled")
    assert group_runs(toy(task), config, runs_of(task), 64) == [[0], [1], [2]]


def test_lone_nodes_stay_alone() -> None:
    lone = toy("graph").graphs[0].clone()
    lone.x, lone.edge_index = lone.x[:1], lone.edge_index[:, :0]
    dataset = dataclasses.replace(toy("graph"), graphs=[lone, *toy("graph").graphs[1:]])
    assert group_runs(dataset, SMALL["graph"], runs_of("graph"), 64) == [[0], [1], [2]]


def test_a_cpu_trains_one_at_a_time_and_a_gpu_what_it_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert most_runs_at_once(toy("node"), SMALL["node"], "cpu") == 1
    monkeypatch.setattr(sources, "pick_device", lambda _: torch.device("cuda"))
    found = {}
    for task in TASKS:
        for free in (10**8, 10**9, 10**12):
            monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, free))
            found[task, free] = most_runs_at_once(toy(task), SMALL[task])
    assert {found[task, 10**8] for task in TASKS} == {1}
    assert {found[task, 10**12] for task in TASKS} == {64}
    assert all(1 < found[task, 10**9] < 64 for task in TASKS)
