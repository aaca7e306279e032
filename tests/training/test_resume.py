"""A run that was interrupted and resumed cannot be told from one that was not."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from training.toys import SCHEMES, SMALL, TASKS, roles, run, same_run, toy
from vepm.errors import InputError
from vepm.scale import executor
from vepm.scale.executor import descend
from vepm.training import Config, Fitted, fitting
from vepm.training.saving import read_tensors


class StopError(Exception):
    pass


def settings(task: str, scheme: str) -> Config:
    """Everything that has a memory: cycles, schedule, patience, several batches."""
    return SMALL[task].replace(
        scheme=scheme,
        encoder_interval=3,
        passes=2,
        consistency_weight=0.5,
        schedule="cosine",
        patience=6,
        epochs=9,
        batch_size=4 if task == "graph" else 0,
        learning_rate=0.1,
    )


@functools.cache
def uninterrupted(task: str, scheme: str) -> Fitted:
    return run(task, settings(task, scheme))


def stop_after(epochs: int, error: type[BaseException] = StopError) -> Any:
    """A progress callback that fails in the epoch after this many were saved."""
    seen = 0

    def progress(phase: str, epoch: int, most: int, row: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen > epochs:
            raise error

    return progress


def saved_epochs(path: Path) -> int:
    return len(read_tensors(path, "training state")[1]["history"])


@pytest.fixture
def always_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_SAVES", 0.0)


# 3 epochs of pretraining: 1 and 2 stop in it, 3 at its end; the encoder moves in every third
# epoch or step of finetuning, so that 4 and 5 stop in mid-cycle and 6 at its end.
@pytest.mark.parametrize("epochs", [1, 3, 4, 5, 6])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.usefixtures("always_saving")
def test_resumed_run_equals_uninterrupted_one(
    task: str, scheme: str, epochs: int, tmp_path: Path
) -> None:
    reference = uninterrupted(task, scheme)
    assert len(reference.history) > epochs
    path = tmp_path / "state.safetensors"
    with pytest.raises(StopError):
        run(task, settings(task, scheme), checkpoint=path, progress=stop_after(epochs))
    assert saved_epochs(path) == epochs
    resumed = run(task, settings(task, scheme), checkpoint=path)
    assert same_run(resumed, reference)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.usefixtures("always_saving")
def test_run_interrupted_after_every_epoch_equals_uninterrupted_one(
    task: str, tmp_path: Path
) -> None:
    reference = uninterrupted(task, "alternating")
    path = tmp_path / "state.safetensors"
    for _ in range(len(reference.history) - 1):
        with pytest.raises(StopError):
            run(task, settings(task, "alternating"), checkpoint=path, progress=stop_after(1))
    resumed = run(task, settings(task, "alternating"), checkpoint=path)
    assert same_run(resumed, reference)


@pytest.mark.usefixtures("always_saving")
def test_best_weights_and_patience_survive_an_interruption(tmp_path: Path) -> None:
    config = settings("node", "joint").replace(epochs=40, patience=5)
    reference = run("node", config)
    pretrained = sum(row["phase"] == "pretrain" for row in reference.history)
    assert len(reference.history) < pretrained + 40
    path = tmp_path / "state.safetensors"
    stop = stop_after(pretrained + reference.best_epoch + 3)
    with pytest.raises(StopError):
        run("node", config, checkpoint=path, progress=stop)
    resumed = run("node", config, checkpoint=path)
    assert len(resumed.history) - 1 > pretrained + resumed.best_epoch
    assert same_run(resumed, reference)


@pytest.mark.usefixtures("always_saving")
def test_finished_run_can_be_resumed_and_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    first = run("node", settings("node", "alternating"), checkpoint=path)
    second = run("node", settings("node", "alternating"), checkpoint=path)
    assert same_run(first, second)


@pytest.mark.usefixtures("always_saving")
def test_communities_alone_can_be_resumed(tmp_path: Path) -> None:
    none, path = torch.empty(0, dtype=torch.long), tmp_path / "state.safetensors"
    options: dict[str, Any] = {"train_on": none, "validate_on": none, "watch": None}
    reference = run("node", **options)
    with pytest.raises(StopError):
        run("node", checkpoint=path, progress=stop_after(2), **options)
    assert same_run(run("node", checkpoint=path, **options), reference)


@pytest.mark.parametrize("task", TASKS)
def test_ctrl_c_in_mid_epoch_leaves_a_file_that_resumes_exactly(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights have moved in the unfinished epoch; the file must not know."""
    reference, path = uninterrupted(task, "joint"), tmp_path / "state.safetensors"
    steps = 0

    def interrupted(loss: Tensor, optimizers: Any, group: Any) -> None:
        nonlocal steps
        descend(loss, optimizers, group)
        steps += 1
        if steps == (5 if task == "node" else 14):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(executor, "descend", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(task, settings(task, "joint"), checkpoint=path)
    assert path.is_file()
    resumed = run(task, settings(task, "joint"), checkpoint=path)
    assert same_run(resumed, reference)


def test_first_epoch_is_saved_then_now_and_then_and_the_end(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    with pytest.raises(StopError):
        run("node", checkpoint=path, progress=stop_after(3))
    assert saved_epochs(path) == 1
    ended = run("node", checkpoint=path)
    assert saved_epochs(path) == len(ended.history)
    told: list[int] = []
    again = run("node", checkpoint=path, progress=lambda *given: told.append(given[1]))
    assert same_run(again, ended)
    assert told == []


@pytest.mark.usefixtures("always_saving")
def test_resuming_with_other_settings_seed_or_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    run("node", checkpoint=path)
    before = path.read_bytes()
    train, val, _ = roles("node")
    other = toy("node").graphs[0].clone()
    for change in (
        {"config": SMALL["node"].replace(dropout=0.4)},
        {"config": SMALL["node"].replace(epochs=50)},
        {"seed": 1},
        {"train_on": train[1:]},
        {"train_on": torch.cat([train, val[:1]]), "validate_on": val[1:]},
    ):
        with pytest.raises(InputError, match="other settings, seed, data or number") as caught:
            run("node", checkpoint=path, **change)
        assert "\n" not in str(caught.value)
    for key in ("x", "y", "edge_index"):
        graph = other.clone()
        graph[key] = graph[key][:, 2:] if key == "edge_index" else graph[key].flip(0)
        with pytest.raises(InputError, match="other settings, seed, data or number"):
            fitting.fit(
                dataclasses.replace(toy("node"), graphs=[graph]),
                SMALL["node"],
                train_on=train,
                validate_on=val,
                device="cpu",
                checkpoint=path,
            )
    assert path.read_bytes() == before


@pytest.mark.usefixtures("always_saving")
def test_callers_random_numbers_survive_an_interruption(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        run(
            "node",
            checkpoint=tmp_path / "state.safetensors",
            progress=stop_after(1, KeyboardInterrupt),
        )
    assert torch.equal(torch.get_rng_state(), before)


def test_the_end_is_saved_however_seldom_saving_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_SAVES", math.inf)
    path, told = tmp_path / "state.safetensors", list[str]()
    reference = run("node", checkpoint=path)
    before = path.stat().st_mtime_ns
    again = run("node", checkpoint=path, progress=lambda *given: told.append(given[0]))
    assert told == []
    assert same_run(again, reference)
    assert path.stat().st_mtime_ns == before
