"""Steps on tensors that are always the same are the steps they stand for."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from training.toys import SCHEMES, TASKS
from vepm.kernels.patterns import GatherPattern
from vepm.nn import Adjacency
from vepm.training.recording import MOST_FORMS, Recorder, _copied, _Form
from vepm.training.together import fit_together, loop

from .doubles import EXACT_TOYS, assert_same_runs, double_precision, quiet, runs_of


class Rehearsal(Recorder):
    """Does everything that a recorder does but leave the work to a GPU."""

    recorded = 0

    def __init__(self, on: bool) -> None:
        super().__init__(on=True)

    def _record(self, form: _Form) -> Callable[[], Any]:
        Rehearsal.recorded += 1
        return lambda: _copied(form.run())


class Numbers:
    """One tensor to read."""

    def __init__(self, *values: float) -> None:
        self.values = torch.tensor(values)

    def tensors(self) -> list[Tensor | None]:
        return [self.values, None]


def _gathered(edges: Adjacency, heads: int, transposed: bool = False) -> GatherPattern:
    return GatherPattern(*edges._ends(transposed), edges.num_nodes)


@pytest.fixture(autouse=True)
def _in_doubles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.optim, "Adam", functools.partial(torch.optim.Adam, eps=1e-3))
    monkeypatch.setattr(Rehearsal, "recorded", 0)
    # Like the kernels of a GPU and unlike those of a CPU, these derive nothing of their own.
    monkeypatch.setattr(Adjacency, "pattern", _gathered)
    with double_precision():
        yield


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("task", TASKS)
def test_replayed_steps_train_alike(
    task: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 0 if task == "node" else 3
    config = quiet(
        task,
        scheme=scheme,
        encoder_interval=2,
        batch_size=size,
        epochs=12,
        passes=2,
        consistency_weight=1.0,
        consistency_warmup=2,
    )
    plain = fit_together(EXACT_TOYS[task], config, runs_of(task), device="cpu")
    monkeypatch.setattr(loop, "Recorder", Rehearsal)
    replayed = fit_together(EXACT_TOYS[task], config, runs_of(task), device="cpu")
    assert_same_runs(replayed, plain)
    assert Rehearsal.recorded >= 2


def test_a_recording_serves_its_form_alone() -> None:
    recorder = Rehearsal(on=True)

    def double(numbers: Numbers) -> dict[str, Tensor]:
        return {"out": 2 * numbers.values}

    for i in range(5):
        for length in (1, 2):
            found = recorder.run("double", double, Numbers(*range(i, i + length)))
            assert found["out"].tolist() == [2 * n for n in range(i, i + length)]
    assert Rehearsal.recorded == 2
    assert recorder.run("negate", lambda n: {"out": -n.values}, Numbers(3))["out"].item() == -3
    recorder.forget()
    recorder.run("double", double, Numbers(1))
    assert Rehearsal.recorded == 2


def test_steps_that_never_come_again_do_not_crowd_out_those_that_do() -> None:
    recorder = Rehearsal(on=True)
    for i in range(MOST_FORMS + 5):
        recorder.run(("once", i), lambda n: {"out": n.values}, Numbers(i))
    for i in range(3):
        recorder.run("again", lambda n: {"out": n.values}, Numbers(i))
    assert Rehearsal.recorded == 1


def test_what_was_returned_stays() -> None:
    recorder = Rehearsal(on=True)
    kept = [recorder.run("same", lambda n: {"out": n.values}, Numbers(i))["out"] for i in range(5)]
    assert [out.item() for out in kept[2:]] == [2, 3, 4]


def test_a_cpu_records_nothing() -> None:
    numbers = Numbers(1, 2)
    recorder = Recorder(on=False)
    for _ in range(4):
        out = recorder.run("read", lambda n: {"out": n.values}, numbers)["out"]
        assert out is numbers.values
