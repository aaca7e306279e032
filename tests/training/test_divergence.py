"""Numbers that stop being finite stop the run, by name, and are never saved."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from training.toys import SMALL, TASKS, run
from vepm.errors import DivergedError
from vepm.objective import Terms
from vepm.scale import executor
from vepm.training import TrainingState, fitting, loop
from vepm.training.losses import bound_loss, predictor_loss, pretraining_loss
from vepm.training.saving import load_state

LOSSES: dict[str, Any] = {
    "pretraining_loss": pretraining_loss,
    "predictor_loss": predictor_loss,
    "bound_loss": bound_loss,
}


def spoiling(name: str, term: str, call: int, value: float) -> Any:
    """A loss whose term is not finite from one call on."""
    calls = 0

    def spoiled(*given: Any) -> Terms:
        nonlocal calls
        calls += 1
        terms = LOSSES[name](*given)
        factor = value if calls >= call else 1.0
        return terms._replace(**{term: getattr(terms, term) * factor}, loss=terms.loss * factor)

    return spoiled


@pytest.mark.parametrize(
    ("name", "term", "phase"),
    [
        ("pretraining_loss", "edges", "pretrain"),
        ("pretraining_loss", "kl", "pretrain"),
        ("predictor_loss", "task", "finetune"),
    ],
)
@pytest.mark.parametrize("task", TASKS)
def test_the_term_the_epoch_and_the_remedy_are_named(
    name: str, term: str, phase: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SMALL[task].replace(batch_size=2 if task == "graph" else 0)
    monkeypatch.setattr(loop, name, spoiling(name, term, 3, math.nan))
    with pytest.raises(DivergedError) as caught:
        run(task, config)
    epoch = 0 if task == "graph" else 2
    assert f"{term} is nan in epoch {epoch} of {phase}" in str(caught.value)
    assert "lower the learning rate" in str(caught.value)


def test_the_last_good_state_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_SAVES", 0.0)
    path = tmp_path / "checkpoint.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(loop, "predictor_loss", spoiling("predictor_loss", "task", 3, math.inf))
        with pytest.raises(DivergedError, match=f"the last good state is kept in {path}"):
            run("node", checkpoint=path)
    resumed = run("node", checkpoint=path)
    whole = run("node")
    assert all(
        torch.equal(one, other)
        for one, other in zip(
            resumed.model.state_dict().values(), whole.model.state_dict().values(), strict=True
        )
    )


@pytest.mark.parametrize("task", TASKS)
def test_weights_that_are_not_finite_are_never_saved(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is finite to the last, but the last gradient is not."""
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_SAVES", 0.0)
    config = SMALL[task].replace(scheme="joint")
    path, epochs = tmp_path / "checkpoint.safetensors", config.training.epochs
    step = executor.descend

    def spoiled(loss: Any, optimizers: Any, group: Any) -> None:
        step(loss, optimizers, group)
        if state_of.get("epoch") == epochs - 1:
            optimizers[0].param_groups[0]["params"][0].data.fill_(math.nan)

    state_of: dict[str, int] = {}
    set_rates = loop._set_rates

    def watched(state: TrainingState, phase: str, epoch: int, config: Any) -> float:
        state_of["epoch"] = epoch if phase == "finetune" else -1
        return set_rates(state, phase, epoch, config)

    monkeypatch.setattr(executor, "descend", spoiled)
    monkeypatch.setattr(loop, "_set_rates", watched)
    with pytest.raises(DivergedError, match="running statistic is not finite in epoch"):
        run(task, config, checkpoint=path)
    saved: dict[str, TrainingState] = {}

    def keep(path: Path, state: TrainingState, fingerprint: Any) -> None:
        load_state(path, state, fingerprint)
        saved["state"] = state
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "load_state", keep)
    with pytest.raises(KeyboardInterrupt):
        run(task, config, checkpoint=path)
    state = saved["state"]
    assert state.courses[0].epoch == epochs - 1
    assert bool(state.executor.weight_sums().isfinite())
