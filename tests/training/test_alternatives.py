"""The partition ``auto``: validation labels choose among a few models, each trained as if alone."""

from pathlib import Path

import pytest
import torch

from training.test_resume import StopError, stop_after
from training.toys import SMALL, TASKS, roles, run, same_run, toy
from vepm.training import Config, Fitted, Run, fit_many, fitting
from vepm.training.presets import preset

NAMES = ["learned", "deeper", "even"]


def settings(task: str) -> Config:
    return SMALL[task].replace(composer="weighted", partition="auto", learning_rate=0.1)


def best_alone(task: str) -> tuple[dict[str, Fitted], str]:
    found = {name: run(task, own) for name, own in settings(task).alternatives().items()}
    rank = {name: (own.best["val_accuracy"], -own.best["val_loss"]) for name, own in found.items()}
    return found, max(rank, key=lambda name: rank[name])


@pytest.mark.parametrize("task", TASKS)
def test_the_best_on_validation_is_kept_as_if_it_had_been_trained_alone(task: str) -> None:
    alone, best = best_alone(task)
    found = run(task, settings(task))
    assert found.tried == {name: own.best["val_accuracy"] for name, own in alone.items()}
    assert list(found.tried) == NAMES
    assert found.card.config == alone[best].card.config
    assert same_run(found, alone[best])


def test_many_runs_at_once_choose_each_for_itself() -> None:
    train, val, _ = roles("node")
    runs = [Run(train, val, None, seed) for seed in range(3)]
    config = settings("node")
    found = fit_many(toy("node"), config, runs, "cpu")
    each = [fit_many(toy("node"), own, runs, "cpu") for own in config.alternatives().values()]
    for kept, *own in zip(found, *each, strict=True):
        accuracies = [one.best["val_accuracy"] for one in own]
        assert list(kept.tried.values()) == accuracies
        assert kept.best["val_accuracy"] == max(accuracies)


# 3 epochs of pretraining, then 5 of each of three models.
@pytest.mark.parametrize("epochs", [2, 3, 6, 8, 10, 14])
def test_a_choice_that_was_interrupted_is_resumed(
    epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_SAVES", 0.0)
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(StopError):
        run("node", settings("node"), checkpoint=path, progress=stop_after(epochs))
    told: list[str] = []
    resumed = run(
        "node",
        settings("node"),
        checkpoint=path,
        progress=lambda phase, *_: told.append(phase),
    )
    # The epoch that was interrupted had been counted, but not saved.
    assert len(told) == 3 + 3 * 5 - epochs
    assert told[-1] == "finetune-even"
    whole = run("node", settings("node"))
    assert resumed.tried == whole.tried
    assert same_run(resumed, whole)


def test_without_validation_labels_the_split_is_learned() -> None:
    found = run("node", settings("node"), validate_on=torch.empty(0, dtype=torch.long))
    assert found.tried == {}
    assert found.card.config.model.partition == "learned"
    train, none = roles("node")[0], torch.empty(0, dtype=torch.long)
    runs = [Run(train, none, None, seed) for seed in range(2)]
    many = fit_many(toy("node"), settings("node"), runs, "cpu")
    assert [own.card.config.model.partition for own in many] == ["learned", "learned"]


def test_the_default_for_nodes_chooses_and_a_partition_by_name_does_not() -> None:
    assert list(preset("default", "node").alternatives()) == NAMES
    assert list(preset("default", "node", partition="even").alternatives()) == ["even"]
    layers = [own.model.bank_layers for own in preset("default", "node").alternatives().values()]
    assert layers == [1, 2, 1]
