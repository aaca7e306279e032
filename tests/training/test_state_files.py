"""Interrupted runs on disk: whole, or refused."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from training.forging import Bomb, Forge, Tensors, forge, put
from training.toys import SMALL, run, same_run, same_weights, started
from vepm.errors import InputError
from vepm.scale.executor import Row
from vepm.training import ModelCard, TrainingState, fitting, load_model, save_model
from vepm.training.config import recorded
from vepm.training.saving import load_state, save_state


def _state() -> TrainingState:
    return started(run("node").model, SMALL["node"])[0]


@pytest.fixture
def state_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state before the last epoch."""

    def stop(phase: str, epoch: int, most: int, row: Row) -> None:
        if (phase, epoch) == ("finetune", most):
            raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_SAVES", 0.0)
    with pytest.raises(KeyboardInterrupt):
        run("node", checkpoint=tmp_path / "state.safetensors", progress=stop)
    return tmp_path / "state.safetensors"


def test_a_state_and_a_model_are_not_taken_for_each_other(state_file: Path) -> None:
    with pytest.raises(InputError, match="not a model written by vepm"):
        load_model(state_file)
    fitted, model_file = run("node"), state_file.with_name("model.safetensors")
    save_model(model_file, fitted.model, fitted.card)
    with pytest.raises(InputError, match="not a training state written by vepm"):
        run("node", checkpoint=model_file)


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state, path = _state(), tmp_path / "state.safetensors"
    course = state.courses[0]
    course.epoch, course.history = 2, [{"phase": "pretrain", "epoch": 1, "loss": 0.1 + 0.2}]
    fingerprint = {"seed": 1, "names": ("a", "b"), "config": SMALL["node"].to_dict()}
    save_state(path, state, fingerprint)
    card = ModelCard("node", 6, SMALL["node"], ("0", "1", "2"))
    model = card.build()
    fresh, executor = started(model, SMALL["node"])
    load_state(path, fresh, fingerprint)
    assert same_weights(model.state_dict(), run("node").model.state_dict())
    assert fresh.courses[0] == course
    assert not executor.best_weights


def test_a_state_of_earlier_settings_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    config = SMALL["node"]
    save_state(path, _state(), {"seed": 1, "config": recorded(config)})
    load_state(path, _state(), {"seed": 1, "config": config.to_dict()})
    with pytest.raises(InputError, match="other settings"):
        load_state(path, _state(), {"seed": 1, "config": config.replace(dropout=0.1).to_dict()})


@pytest.mark.parametrize(("before", "after"), [({"processes": 2}, {}), ({}, {"processes": 2})])
def test_a_state_of_more_or_fewer_processes_is_refused(
    before: dict[str, int], after: dict[str, int], tmp_path: Path
) -> None:
    path, known = tmp_path / "state.safetensors", {"seed": 1, "config": SMALL["node"].to_dict()}
    save_state(path, _state(), known | before)
    with pytest.raises(InputError, match="other settings, seed, data or number of processes"):
        load_state(path, _state(), known | after)
    load_state(path, _state(), known | before)


def _without(prefix: str) -> Forge:
    def change(tensors: Tensors, header: dict[str, Any]) -> None:
        for name in [name for name in tensors if name.startswith(prefix)]:
            del tensors[name]

    return change


def _reshaped(name: str) -> Forge:
    return lambda tensors, header: tensors.update({name: torch.ones(2)})


@pytest.mark.parametrize(
    "change",
    [
        _without("model."),
        _without("model.activation_logit"),
        _without("best."),
        _without("best.activation_logit"),
        _without("predictor.0.exp_avg"),
        _without("encoder.0.step"),
        _reshaped("model.activation_logit"),
        _reshaped("best.activation_logit"),
        _reshaped("predictor.0.exp_avg"),
        _reshaped("predictor.999.exp_avg"),
        _reshaped("predictor.x.exp_avg"),
        put(phase="lunch"),
        put(phase=None),
        put(epoch="2"),
        put(history={}),
        put(stale=None),
        put(best_score=[1.0]),
        lambda tensors, header: header.pop("smoothed"),
    ],
)
def test_states_that_do_not_add_up_are_refused(change: Forge, state_file: Path) -> None:
    forge(state_file, change)
    with pytest.raises(InputError, match="not a usable training state") as caught:
        run("node", checkpoint=state_file)
    assert "\n" not in str(caught.value)


def test_a_damaged_state_is_refused(state_file: Path) -> None:
    content = state_file.read_bytes()
    for damaged in (b"", content[:-1], content[: len(content) // 2], pickle.dumps(Bomb())):
        state_file.write_bytes(damaged)
        with pytest.raises(InputError, match="not a whole safetensors file"):
            run("node", checkpoint=state_file)
    state_file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="damaged"):
        run("node", checkpoint=state_file)


def test_a_whole_state_is_not_refused(state_file: Path) -> None:
    forge(state_file, lambda tensors, header: None)
    assert same_run(run("node", checkpoint=state_file), run("node"))
