"""Which weights move when, which epoch is kept, and who may choose it."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from training.toys import (
    SCHEMES,
    SMALL,
    TASKS,
    roles,
    run,
    same_weights,
    source_of,
    started,
    timeless,
    toy,
    weights,
)
from vepm.errors import InputError
from vepm.nn import VEPM
from vepm.training import (
    Config,
    GraphBatch,
    ModelCard,
    Run,
    Source,
    TrainingState,
    scores,
    train,
)
from vepm.training.loop import _set_rates, scheme_steps
from vepm.training.prediction import calibrate


def start(
    task: str, config: Config, of: Run | None = None, source: Source | None = None
) -> tuple[TrainingState, VEPM]:
    dataset = toy(task)
    torch.manual_seed(0)
    model = ModelCard(task, dataset.num_features, config, dataset.class_names).build()
    return started(model, config, task, of, source)[0], model


def parts(model: VEPM) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Copies of what the encoder owns and of what the predictor owns, statistics included."""
    copies = {name: value.clone() for name, value in model.state_dict().items()}
    ours = {name for name in copies if name.startswith(("encoder", "activation"))}
    encoder = {name: value for name, value in copies.items() if name in ours}
    return encoder, {name: value for name, value in copies.items() if name not in ours}


def movements(task: str, config: Config, of: Run | None = None) -> list[tuple[str, bool, bool]]:
    """After every epoch: its phase, whether the encoder moved, whether the predictor did."""
    state, model = start(task, config, of)
    before, moved = parts(model), []

    def watch(now: TrainingState) -> None:
        nonlocal before
        after = parts(model)
        changes = [not same_weights(a, b) for a, b in zip(before, after, strict=True)]
        moved.append((now.phase, changes[0], changes[1]))
        before = after

    train(state, config.training, on_epoch=watch)
    return moved


@pytest.mark.parametrize("task", TASKS)
def test_pretraining_moves_the_encoder_alone(task: str) -> None:
    moved = movements(task, SMALL[task])
    assert [row for row in moved if row[0] == "pretrain"] == [("pretrain", True, False)] * 3


@pytest.mark.parametrize("task", TASKS)
def test_scheme_predictor_leaves_encoder_and_activation_alone(task: str) -> None:
    moved = movements(task, SMALL[task].replace(scheme="predictor"))
    assert moved[3:] == [("finetune", False, True)] * 5


@pytest.mark.parametrize("task", TASKS)
def test_scheme_alternating_moves_the_encoder_every_so_many_steps(task: str) -> None:
    moved = movements(task, SMALL[task].replace(scheme="alternating", encoder_interval=2))
    assert [encoder for _, encoder, _ in moved[3:]] == [False, True, False, True, False]
    assert all(predictor for _, _, predictor in moved[3:])


def test_steps_of_graph_tasks_are_counted_through_batches() -> None:
    # 7 graphs in batches of 4: two steps an epoch, and the encoder moves in steps 3, 6 and 9.
    config = SMALL["graph"].replace(scheme="alternating", encoder_interval=3, batch_size=4)
    moved = movements("graph", config)
    assert [encoder for _, encoder, _ in moved[3:]] == [False, True, True, False, True]


@pytest.mark.parametrize("task", TASKS)
def test_scheme_joint_moves_both(task: str) -> None:
    moved = movements(task, SMALL[task].replace(scheme="joint"))
    assert moved[3:] == [("finetune", True, True)] * 5


@pytest.mark.parametrize("task", TASKS)
def test_scheme_scratch_moves_both_and_never_pretrains(task: str) -> None:
    moved = movements(task, SMALL[task].replace(scheme="scratch"))
    assert moved == [("finetune", True, True)] * 5
    history = run(task, SMALL[task].replace(scheme="scratch")).history
    assert {row["phase"] for row in history} == {"finetune"}


def test_steps_of_every_scheme_by_hand() -> None:
    both, one, two = ("both",), ("predictor",), ("predictor", "encoder")
    expected = {
        "alternating": [one, one, two, one, one, two],
        "joint": [both] * 6,
        "predictor": [one] * 6,
        "scratch": [both] * 6,
    }
    assert {s: [scheme_steps(s, 3, step) for step in range(6)] for s in SCHEMES} == expected
    assert [scheme_steps("alternating", 1, step) for step in range(3)] == [two] * 3


def factors(schedule: str, epochs: int, *at: int) -> list[float]:
    config = SMALL["node"].replace(schedule=schedule, epochs=epochs, learning_rate=1.0)
    state, _ = start("node", config)
    return [_set_rates(state, "finetune", epoch, config.training) for epoch in at]


def test_schedules_by_hand() -> None:
    assert factors("constant", 4, 0, 3) == [1.0, 1.0]
    cosine = factors("cosine", 4, *range(5))
    assert cosine == pytest.approx([1, (1 + 2**-0.5) / 2, 0.5, (1 - 2**-0.5) / 2, 0])
    halving = factors("halving", 999, 0, 49, 50, 99, 100, 150)
    assert halving == [1, 1, 0.5, 0.5, 0.25, 0.125]


def test_schedule_reaches_the_steps_and_the_history() -> None:
    config = SMALL["node"].replace(schedule="cosine", learning_rate=0.02)
    rates = [row["learning_rate"] for row in run("node", config).history]
    cosine = [0.02 * factor for factor in factors("cosine", 5, *range(5))]
    assert rates == pytest.approx([0.01] * 3 + cosine)


LONG: dict[str, Any] = {"epochs": 20, "learning_rate": 0.2, "patience": 4}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("task", TASKS)
def test_weights_of_the_best_validation_epoch_are_restored(task: str, scheme: str) -> None:
    fitted = run(task, SMALL[task].replace(scheme=scheme, **LONG))
    val = roles(task)[1]
    rows = [row for row in fitted.history if row["phase"] == "finetune"]
    expected = max(rows, key=lambda row: (row["val_accuracy"], -row["val_loss"]))
    assert fitted.best is expected
    assert expected["epoch"] == fitted.best_epoch
    logits = scores(fitted.model, fitted.source)[val]
    y = fitted.source.y[val]
    assert float((logits.argmax(1) == y).double().mean()) == expected["val_accuracy"]
    assert float(torch.nn.functional.cross_entropy(logits, y)) == expected["val_loss"]


def test_training_stops_when_patience_runs_out() -> None:
    config = SMALL["node"].replace(scheme="joint", learning_rate=0.2, epochs=60, patience=4)
    fitted = run("node", config)
    rows = [row for row in fitted.history if row["phase"] == "finetune"]
    assert len(rows) == fitted.best_epoch + 1 + 4 < 60


def test_patience_of_zero_never_stops() -> None:
    config = SMALL["node"].replace(scheme="joint", learning_rate=0.2, epochs=30, patience=0)
    assert len(run("node", config).history) == 3 + 30


def test_ties_in_accuracy_go_to_the_lower_loss() -> None:
    # A single validation graph is right or wrong: nearly all epochs tie.
    config = SMALL["graph"].replace(epochs=12, learning_rate=0.05)
    fitted = run("graph", config, validate_on=torch.tensor([8]))
    rows = [row for row in fitted.history if row["phase"] == "finetune"]
    top = max(row["val_accuracy"] for row in rows)
    tied = [row for row in rows if row["val_accuracy"] == top]
    assert len(tied) > 1
    assert fitted.best["val_loss"] == min(row["val_loss"] for row in tied)


def test_without_validation_the_last_epoch_is_kept() -> None:
    none = torch.empty(0, dtype=torch.long)
    fitted = run("node", validate_on=none, watch=None)
    assert fitted.best_epoch == 4
    assert "val_accuracy" not in fitted.best
    state, model = start("node", SMALL["node"], Run(roles("node")[0], none))
    train(state, SMALL["node"].training)
    assert same_weights(model.state_dict(), weights(fitted))


@pytest.mark.parametrize("task", TASKS)
def test_labels_of_watched_nodes_and_graphs_choose_nothing(task: str) -> None:
    config = SMALL[task].replace(**LONG)
    first, source = run(task, config), source_of(task)
    y, test = source.y.clone(), roles(task)[2]
    y[test] = (y[test] + 1) % toy(task).num_classes
    if task == "node":
        assert isinstance(source, GraphBatch)
        source = dataclasses.replace(source, y=y)
    else:
        source.y = y  # type: ignore[misc]
    state, model = start(task, config, source=source)
    train(state, config.training)
    calibrate(model, source, roles(task)[1], config.training.num_samples, seed=0)
    assert same_weights(model.state_dict(), weights(first))
    course = state.courses[0]
    assert course.best_epoch == first.best_epoch
    kept = [
        [{k: v for k, v in row.items() if "test" not in k} for row in timeless(history)]
        for history in (course.history, first.history)
    ]
    assert kept[0] == kept[1]
    assert any(
        a.get("test_loss") != b.get("test_loss")
        for a, b in zip(course.history, first.history, strict=True)
    )


def test_training_leaves_the_model_ready_to_predict() -> None:
    for task in TASKS:
        model = run(task).model
        assert not any(module.training for module in model.modules())


def test_no_epoch_of_training_is_refused() -> None:
    with pytest.raises(InputError, match="epochs"):
        SMALL["node"].replace(epochs=0)
