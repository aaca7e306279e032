"""Captured steps do what the steps themselves do."""

import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from training.toys import SCHEMES, TASKS
from vepm.kernels.patterns import Pattern
from vepm.nn import Adjacency
from vepm.scale import many
from vepm.scale.cuda_graphs import (
    CUDAGraphs,
    _no_garbage_collection,
    worth_capturing,
)
from vepm.training import fit_many

from .doubles import EXACT_TOYS, assert_same_runs, double_precision, quiet, runs_of


class Rehearsal(CUDAGraphs):
    """Captures steps like CUDAGraphs, and runs them eagerly where those would be replayed."""

    captured = 0

    def __init__(self, on: bool) -> None:
        super().__init__(on=True)

    def _captured(self, run: Callable[[], Any]) -> Callable[[], Any]:
        Rehearsal.captured += 1
        return lambda: tree_map_only(Tensor, Tensor.clone, run())


class Numbers(NamedTuple):
    """One tensor to read."""

    values: Tensor
    none: None = None


def numbers_of(*values: float) -> Numbers:
    return Numbers(torch.tensor(values))


def _gathered(edges: Adjacency, heads: int, transposed: bool = False) -> Pattern:
    ends = (edges.source, edges.target) if transposed else (edges.target, edges.source)
    return Pattern(*ends, edges.num_nodes)


@pytest.fixture(autouse=True)
def _in_doubles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.optim, "Adam", functools.partial(torch.optim.Adam, eps=1e-3))
    monkeypatch.setattr(Rehearsal, "captured", 0)
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
    )
    plain = fit_many(EXACT_TOYS[task], config, runs_of(task), device="cpu")
    monkeypatch.setattr(many, "CUDAGraphs", Rehearsal)
    replayed = fit_many(EXACT_TOYS[task], config, runs_of(task), device="cpu")
    assert_same_runs(replayed, plain)
    assert Rehearsal.captured >= 2


def test_a_cuda_graph_serves_its_shapes_alone() -> None:
    graphs = Rehearsal(on=True)

    def double(numbers: Numbers) -> dict[str, Tensor]:
        return {"out": 2 * numbers.values}

    for i in range(5):
        for length in (1, 2):
            found = graphs.run("double", double, numbers_of(*range(i, i + length)))
            assert found["out"].tolist() == [2 * n for n in range(i, i + length)]
    assert Rehearsal.captured == 2
    assert graphs.run("negate", lambda n: {"out": -n.values}, numbers_of(3))["out"].item() == -3
    graphs.forget()
    graphs.run("double", double, numbers_of(1))
    assert Rehearsal.captured == 2


def test_what_was_returned_stays() -> None:
    graphs = Rehearsal(on=True)
    kept = [graphs.run("same", lambda n: {"out": n.values}, numbers_of(i))["out"] for i in range(5)]
    assert [out.item() for out in kept[2:]] == [2, 3, 4]


def test_a_cpu_captures_nothing() -> None:
    numbers = numbers_of(1, 2)
    graphs = CUDAGraphs(on=False)
    for _ in range(4):
        out = graphs.run("read", lambda n: {"out": n.values}, numbers)["out"]
        assert out is numbers.values


def test_a_step_runs_twice_before_it_is_captured() -> None:
    graphs, captured = Rehearsal(on=True), []
    for i in range(4):
        graphs.run("same", lambda n: {"out": n.values}, numbers_of(i))
        captured.append(Rehearsal.captured)
    assert captured == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("edges", "device", "worth"),
    [(2**21, "cuda", True), (2**21 + 1, "cuda", False), (1, "cpu", False), (1, None, False)],
)
def test_steps_that_keep_a_gpu_busy_are_not_captured(
    edges: int, device: str | None, worth: bool
) -> None:
    assert worth_capturing(torch.empty(2, edges, device="meta"), device) == worth


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_waits_for_the_end_of_a_capture(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "isenabled", lambda: enabled)
    for name in ("collect", "disable", "enable"):
        monkeypatch.setattr(gc, name, lambda name=name: done.append(name))

    def capture() -> None:
        done.append("capture")
        raise KeyError

    with pytest.raises(KeyError), _no_garbage_collection():
        capture()
    assert done == ["collect", "disable", "capture", *["enable"] * enabled]
