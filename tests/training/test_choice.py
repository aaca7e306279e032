"""Partition auto: a learned and an even split are trained, and validation labels choose."""

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
    return {name: run(task, settings(task, partition=name), **options) for name in TRIED}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("task", TASKS)
def test_the_better_of_two_separate_trainings_is_kept(task: str, seed: int) -> None:
    alone = each(task, seed=seed)
    found = run(task, settings(task, partition="auto"), seed=seed)
    scores = {n: (one.best["val_accuracy"], -one.best["val_loss"]) for n, one in alone.items()}
    best = max(scores, key=lambda name: scores[name])
    assert found.tried == {name: score[0] for name, score in scores.items()}
    assert found.card.config == settings(task, partition=best)
    assert same_run(found, alone[best])


def test_both_splits_are_chosen_somewhere() -> None:
    chosen = {
        run("node", settings("node", partition="auto"), seed=seed).card.config.model.partition
        for seed in range(8)
    }
    assert chosen == {"learned", "even"}


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
        fit_many(toy(task), settings(task, partition=name), runs, "cpu")
        for name in ("auto", *TRIED)
    )
    for found, *own in zip(auto, *alone, strict=True):
        best = max(own, key=lambda one: one.score)
        assert same_run(found, best)
        assert found.card.config == best.card.config


@pytest.mark.parametrize("epochs", [2, 3, 6, 11, 12, 15])
def test_resumed_choice_equals_an_uninterrupted_one(
    epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 epochs of pretraining, 8 of finetuning with the learned split, 8 with the even one."""
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_SAVES", 0.0)
    config, path = settings("node", partition="auto"), tmp_path / "state.safetensors"
    reference = run("node", config)
    with pytest.raises(StopError):
        run("node", config, checkpoint=path, progress=stop_after(epochs))
    resumed = run("node", config, checkpoint=path)
    assert same_run(resumed, reference)
    assert resumed.tried == reference.tried
    assert path.with_stem("state-even").exists()


def test_progress_names_the_split_that_is_tried_second() -> None:
    told: list[str] = []
    run("node", settings("node", partition="auto"), progress=lambda *given: told.append(given[0]))
    assert list(dict.fromkeys(told)) == ["pretrain", "finetune", "finetune (even)"]
    assert len(told) == 3 + 8 + 8


def test_cost_counts_both_trainings() -> None:
    found = run("node", settings("node", partition="auto"))
    epochs, seconds = found.spent
    assert epochs == 8
    assert seconds > 0
