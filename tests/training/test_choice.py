"""Partition auto: several models are finetuned, and validation labels choose."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from training.test_resume import StopError, stop_after
from training.toys import SMALL, TASKS, roles, run, same_run, toy
from vepm.data import as_dataset
from vepm.training import Config, Fitted, Run, fit_many, fitting
from vepm.training.config import TRIED

NONE = torch.empty(0, dtype=torch.long)


@pytest.fixture(autouse=True)
def every_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """However alike neighbours are on the toy, all that can be tried is."""
    monkeypatch.setattr(fitting, "HOMOPHILOUS", 2.0)


def settings(task: str, **changes: Any) -> Config:
    return SMALL[task].replace(shares="posterior", epochs=8, scheme="joint", **changes)


def tried(task: str) -> dict[str, dict[str, Any]]:
    """What is tried: GIN, of graphs, is never replaced."""
    return {name: own for name, own in TRIED.items() if task == "node" or name != "sage"}


def each(task: str, **options: Any) -> dict[str, Fitted]:
    return {name: run(task, settings(task, **own), **options) for name, own in tried(task).items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("task", TASKS)
def test_the_best_of_separate_trainings_is_kept(task: str, seed: int) -> None:
    alone = each(task, seed=seed)
    found = run(task, settings(task, partition="auto"), seed=seed)
    scores = {n: (one.best["val_accuracy"], -one.best["val_loss"]) for n, one in alone.items()}
    best = max(scores, key=lambda name: scores[name])
    assert found.tried == {name: score[0] for name, score in scores.items()}
    assert next(iter(found.tried)) == best
    assert found.card.config == settings(task, **TRIED[best])
    assert same_run(found, alone[best])


def test_each_is_chosen_somewhere() -> None:
    auto = settings("node", partition="auto")
    assert {next(iter(run("node", auto, seed=seed).tried)) for seed in range(8)} == set(TRIED)


def test_what_would_be_trained_twice_is_trained_once() -> None:
    found = run("node", settings("node", **TRIED["sage"] | {"partition": "auto"}))
    assert found.tried.keys() == {"learned", "even"}


@pytest.mark.parametrize(("between", "names"), [(0.0, TRIED), (1.0, {"learned", "even"})])
def test_a_node_is_kept_apart_where_neighbours_are_of_other_classes(
    between: float, names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    y = torch.arange(40) % 2
    same = y[:, None] == y
    edge_index = ((same == bool(between)) & ~torch.eye(40, dtype=torch.bool)).nonzero().t()
    graph = as_dataset(Data(x=torch.eye(40), edge_index=edge_index, y=y))
    own = settings("node", partition="auto")
    runs = [Run(torch.arange(12), torch.arange(12, 30), None, seed) for seed in (0, 1)]
    assert all(one.tried.keys() == set(names) for one in fit_many(graph, own, runs, "cpu"))


def test_runs_at_once_differ_in_what_they_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours of the nodes whose labels a run knows decide what it tries."""
    monkeypatch.undo()
    y = torch.tensor([0, 0, 1, 1, 0, 1, 0, 1])
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6]])
    graph = as_dataset(Data(x=torch.eye(8), edge_index=edges, y=y))
    halves = (torch.arange(4), torch.arange(4, 8))
    runs = [Run(half[::2], half[1::2], None, 0) for half in halves]
    found = fit_many(graph, settings("node", partition="auto"), runs, "cpu")
    assert [set(one.tried) for one in found] == [{"learned", "even"}, set(TRIED)]


@pytest.mark.parametrize("options", [{"validate_on": NONE}, {"train_on": NONE}])
def test_without_validation_labels_the_split_is_learned(options: dict[str, Any]) -> None:
    found = run("node", settings("node", partition="auto"), **options)
    assert found.tried == {}
    assert same_run(found, run("node", settings("node", partition="learned"), **options))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("seeds", [(0, 0, 0), (0, 1, 2)])
def test_each_of_many_runs_has_its_own_choice(task: str, seeds: tuple[int, ...]) -> None:
    train, val, test = roles(task)
    runs = [Run(train, val.roll(seed)[: val.numel() - 1], test, seed) for seed in seeds]
    auto, *alone = (
        fit_many(toy(task), settings(task, **own), runs, "cpu")
        for own in ({"partition": "auto"}, *tried(task).values())
    )
    for found, *own in zip(auto, *alone, strict=True):
        best = max(own, key=lambda one: (one.best["val_accuracy"], -one.best["val_loss"]))
        assert same_run(found, best)
        assert found.card.config == best.card.config


@pytest.mark.parametrize("epochs", [2, 3, 6, 11, 12, 15, 19, 24])
def test_resumed_choice_equals_an_uninterrupted_one(
    epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 epochs of pretraining, 8 of finetuning for each that is tried."""
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_SAVES", 0.0)
    config, path = settings("node", partition="auto"), tmp_path / "state.safetensors"
    reference = run("node", config)
    with pytest.raises(StopError):
        run("node", config, checkpoint=path, progress=stop_after(epochs))
    resumed = run("node", config, checkpoint=path)
    assert same_run(resumed, reference)
    assert resumed.tried == reference.tried
    assert path.with_stem("state-even").exists()
    assert path.with_stem("state-sage").exists()


def test_progress_names_what_is_tried_after_the_first() -> None:
    told: list[str] = []
    run("node", settings("node", partition="auto"), progress=lambda *given: told.append(given[0]))
    then = ["finetune (even)", "finetune (sage)"]
    assert list(dict.fromkeys(told)) == ["pretrain", "finetune", *then]
    assert len(told) == 3 + 8 + 8 + 8


def test_cost_counts_all_trainings() -> None:
    found = run("node", settings("node", partition="auto"))
    epochs, seconds = found.spent
    assert epochs == 16
    assert seconds > 0
