"""Trainings that failed say so, and those that did not are silent."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from training.toys import SMALL, TASKS, toy
from vepm.data import Dataset, planted_graph
from vepm.nn import VEPM
from vepm.training import Fitted, fit, preset
from vepm.training import fitted as checks
from vepm.training.fitted import signs_of_failure
from vepm.training.fitting import NONE

TRAIN, VAL = torch.arange(0, 60), torch.arange(60, 100)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return planted_graph(120, 3, num_features=20, seed=0)


@pytest.fixture(scope="module")
def fitted(dataset: Dataset) -> Fitted:
    config = preset("default", "node").replace(pretrain_epochs=60, epochs=60)
    return fit(dataset, config, train_on=TRAIN, validate_on=VAL, device="cpu")


def test_a_training_that_went_well_has_no_warnings(fitted: Fitted) -> None:
    assert fitted.best["val_accuracy"] > 0.9
    assert fitted.warnings == ()


def signs(fitted: Fitted, *, val: torch.Tensor = VAL, **best: float) -> list[str]:
    """What is found in the same run, had its best epoch been another."""
    rows = [{"phase": "finetune", **fitted.best, **best}] * 3
    return list(signs_of_failure(replace(fitted, history=rows, best_epoch=1), TRAIN, val))


def test_accuracy_is_held_against_simple_rules(fitted: Fitted) -> None:
    assert signs(fitted) == []
    largest, propagation = signs(fitted, val_accuracy=0.2)
    assert "of always choosing the largest class" in largest
    assert "label propagation" in propagation
    assert "another seed" in propagation
    by_rows = fitted.card.config.replace(feature_norm="l2")
    old = replace(fitted, card=replace(fitted.card, config=by_rows))
    assert 'feature_norm = "auto"' in signs(old, val_accuracy=0.2)[0]


def test_few_validation_labels_calibrate_nothing(fitted: Fitted) -> None:
    (found,) = signs(fitted, val=VAL[:19])
    assert "19 validation labels are too few" in found
    assert signs(fitted, val=VAL[:20]) == []
    (found,) = signs(fitted, val=VAL[:0])
    assert found.startswith("without labels to validate on")


def test_a_first_epoch_that_was_never_beaten(fitted: Fitted) -> None:
    epoch = {"phase": "finetune", "val_accuracy": 1.0}
    rows: list[dict[str, Any]] = [{"phase": "pretrain"}, epoch, epoch, epoch]
    never = replace(fitted, history=rows, best_epoch=0)
    (found,) = signs_of_failure(never, TRAIN, VAL)
    assert "none of 3 epochs was better than the first" in found
    assert not list(signs_of_failure(replace(never, best_epoch=2), TRAIN, VAL))
    assert not list(signs_of_failure(replace(never, history=rows[:2]), TRAIN, VAL))


def _silenced(fitted: Fitted, part: str) -> VEPM:
    """The model with one part that says the same of everything."""
    model = fitted.card.build()
    model.load_state_dict(fitted.model.state_dict())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith(part):
                weight.zero_()
    return model


@pytest.mark.parametrize("task", TASKS)
def test_one_class_and_one_community(task: str) -> None:
    rows = torch.arange(0, 8), torch.arange(8, 11)
    fitted = fit(toy(task), SMALL[task], train_on=rows[0], validate_on=rows[1], device="cpu")
    for part, words in [
        ("composer", f"every {task} is predicted"),
        ("encoder", "all nodes belong"),
    ]:
        silent = replace(fitted, model=_silenced(fitted, part), history=[])
        found = signs_of_failure(silent, *rows)
        assert any(line.startswith(words) for line in found)


def test_communities_without_labels_are_checked_alone(dataset: Dataset) -> None:
    fitted = fit(dataset, SMALL["node"], device="cpu")
    assert not any("label" in line for line in fitted.warnings)


def test_nothing_is_checked_where_only_scores_matter(dataset: Dataset) -> None:
    for calibrated in (True, False):
        fitted = fit(
            dataset,
            SMALL["node"],
            train_on=TRAIN,
            validate_on=VAL[:3],
            device="cpu",
            calibrated=calibrated,
        )
        assert bool(fitted.warnings) == calibrated


@pytest.mark.parametrize(
    ("mains", "heads", "count"),
    [([1], 2, 0), ([1, 1], 2, 2), ([1, 1], 1, 1), ([0, 1], 2, 0), ([0, 1, 0], 2, 0)],
)
def test_a_single_node_or_community_is_no_collapse(
    mains: list[int], heads: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = torch.eye(2)[mains]
    card: Any = SimpleNamespace(
        class_names=("cat", "dog"),
        task="node",
        config=SMALL["node"].replace(num_metacommunities=heads),
    )
    model: Any = SimpleNamespace(encode=lambda *_: None, interactions=None)
    monkeypatch.setattr(checks, "scores", lambda *_: table)
    monkeypatch.setattr(checks, "pieces", lambda _: [SimpleNamespace(x=None, edges=None)])
    monkeypatch.setattr(checks, "draw", lambda *_, **__: table)
    monkeypatch.setattr(checks, "interactions", lambda z, *_: z)
    fitted: Any = SimpleNamespace(model=model, card=card, source=None, finetuned=[])
    found = [*signs_of_failure(fitted, torch.arange(9), torch.arange(20))]
    assert len(found) == count
    assert all("class 'dog'" in line for line in found[:1])
    assert len([*signs_of_failure(fitted, NONE, NONE)]) == max(count - 1, 0)
