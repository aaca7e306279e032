"""Partition auto: several models are finetuned, and validation labels choose."""

from pathlib import Path
from typing import Any

import pytest
import torch

from training.test_resume import StopError, stop_after
from training.toys import SMALL, TASKS, roles, run, same_run, toy
from vepm.training import Config, Fitted, Run, fit_many, fitting
from vepm.training.config import TRIED

NONE = torch.empty(0, dtype=torch.long)


def settings(task: str, **changes: Any) -> Config:
    return SMALL[task].replace(shares="posterior", epochs=8, scheme="joint", **changes)


def each(task: str, **options: Any) -> dict[str, Fitted]:
    return {name: run(task, settings(task, **own), **options) for name, own in TRIED.items()}


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
    found = run("node", settings("node", **TRIED["linear"] | {"partition": "auto"}))
    assert found.tried.keys() == {"learned", "even"}


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
        for own in ({"partition": "auto"}, *TRIED.values())
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
    assert path.with_stem("state-linear").exists()


def test_progress_names_what_is_tried_after_the_first() -> None:
    told: list[str] = []
    run("node", settings("node", partition="auto"), progress=lambda *given: told.append(given[0]))
    then = ["finetune (even)", "finetune (linear)"]
    assert list(dict.fromkeys(told)) == ["pretrain", "finetune", *then]
    assert len(told) == 3 + 8 + 8 + 8


def test_cost_counts_all_trainings() -> None:
    found = run("node", settings("node", partition="auto"))
    epochs, seconds = found.spent
    assert epochs == 16
    assert seconds > 0
