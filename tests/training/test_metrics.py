"""Scores against what they are by hand and by a plain loop."""

import importlib.metadata
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strategies import quick, seeds
from vepm import measures, runs
from vepm.measures import (
    accuracy,
    agreement_with_kinds,
    calibration_error,
    summarise_parts,
)
from vepm.runs import commit, describe_machine, peak_memory


def rows(*values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values)


def test_accuracy_by_hand() -> None:
    found = rows((0.9, 0.1), (0.4, 0.6), (0.3, 0.7), (0.8, 0.2))
    assert accuracy(found, torch.tensor([0, 1, 0, 1])) == 0.5
    assert accuracy(found, torch.tensor([0, 1, 1, 0])) == 1.0
    assert accuracy(found, torch.tensor([1, 0, 0, 1])) == 0.0


def test_calibration_by_hand() -> None:
    # Ten bins: 0.95 and 0.91 share one, in which 1 of 2 is right; 0.6 is alone and right.
    found = rows((0.95, 0.05), (0.91, 0.09), (0.4, 0.6))
    expected = (2 * abs(0.5 - 0.93) + 1 * abs(1 - 0.6)) / 3
    assert calibration_error(found, torch.tensor([0, 1, 1]), bins=10) == pytest.approx(expected)


def test_the_sure_and_right_are_calibrated_and_the_sure_and_wrong_are_not() -> None:
    sure = torch.eye(3)
    assert calibration_error(sure, torch.tensor([0, 1, 2])) == 0
    assert calibration_error(sure, torch.tensor([1, 2, 0])) == 1


def test_no_predictions_have_no_error() -> None:
    assert calibration_error(torch.empty(0, 3), torch.empty(0, dtype=torch.long)) == 0


def calibration_by_loop(probabilities: Tensor, y: Tensor, bins: int) -> float:
    members: dict[int, list[tuple[float, bool]]] = {}
    for row, label in zip(probabilities.double().tolist(), y.tolist(), strict=True):
        confidence = max(row)
        number = min(int(confidence * bins), bins - 1)
        members.setdefault(number, []).append((confidence, row.index(confidence) == label))
    error = 0.0
    for found in members.values():
        confidence = sum(c for c, _ in found) / len(found)
        share = sum(hit for _, hit in found) / len(found)
        error += len(found) / len(y) * abs(share - confidence)
    return error


@quick
@given(seeds, st.integers(1, 40), st.integers(2, 5), st.integers(1, 20))
def test_calibration_is_that_of_a_plain_loop(seed: int, n: int, classes: int, bins: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    found = torch.softmax(3 * torch.randn(n, classes, generator=generator), dim=1)
    y = torch.randint(classes, (n,), generator=generator)
    expected = calibration_by_loop(found, y, bins)
    assert calibration_error(found, y, bins) == pytest.approx(expected, abs=1e-9)
    assert 0 <= calibration_error(found, y, bins) <= 1


def test_calibration_has_fifteen_bins_unless_told() -> None:
    torch.manual_seed(0)
    found, y = torch.softmax(torch.randn(500, 3), dim=1), torch.randint(3, (500,))
    assert calibration_error(found, y) == pytest.approx(calibration_by_loop(found, y, 15))


def of_nodes(labels: Tensor) -> Any:
    return SimpleNamespace(graphs=[None], labels=labels, single_graph=True, kind_names=None)


@pytest.mark.parametrize(("joined", "enough"), [(49, False), (50, True)])
def test_homophily_of_few_edges_is_mostly_chance(joined: int, enough: bool) -> None:
    model = SimpleNamespace(composer=SimpleNamespace(relevance=None))
    # A star whose last edge leads to a node that does not train, and half of whose labels differ.
    ends = torch.stack([torch.zeros(joined + 1).long(), torch.arange(1, joined + 2)])
    edges = torch.cat([ends, ends.flip(0)], dim=1)
    shares = torch.tensor([[0.25, 0.75, 0.0]]).expand(edges.size(1), 3)
    labels = torch.arange(joined + 2) % 2
    train = torch.arange(joined + 1)
    parts = summarise_parts(model, of_nodes(labels), train, edges, shares)  # type: ignore[arg-type]
    assert [part["share"] for part in parts] == pytest.approx([0.25, 0.75, 0.0])
    half = pytest.approx((joined // 2) / joined) if enough else None
    assert [part["homophily"] for part in parts] == [half, half, None]


@pytest.mark.parametrize(("edges", "shares"), [(0, [0.0, 0.0]), (1, [0.25, 0.75])])
def test_parts_of_hardly_any_edge(edges: int, shares: list[float]) -> None:
    model = SimpleNamespace(composer=SimpleNamespace(relevance=None))
    ends, none = torch.zeros(2, edges).long(), torch.zeros(0).long()
    table = torch.tensor([[0.25, 0.75]]).expand(edges, 2)
    data = of_nodes(torch.zeros(1))
    parts = summarise_parts(model, data, none, ends, table)  # type: ignore[arg-type]
    assert [part["share"] for part in parts] == pytest.approx(shares)
    assert {part["homophily"] for part in parts} == {None}
    assert [part["kinds"] for part in parts] == [{}, {}]


def test_edges_that_rank_kinds_are_evenly_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = torch.tensor([[1, 0], [0, 1]] * 12).bool()
    shares = kinds.float()
    # The parts of every third edge are swapped, which is as good if only those are looked at.
    shares[::3] = 1 - shares[::3]
    monkeypatch.setattr(measures, "RANKED_EDGES", 8)
    assert agreement_with_kinds(shares, kinds)[1] == 1
    monkeypatch.setattr(measures, "RANKED_EDGES", 24)
    assert agreement_with_kinds(shares, kinds)[1] < 1


@pytest.mark.parametrize(("system", "unit"), [("linux", 2**10), ("darwin", 2**20)])
def test_memory_is_counted_in_the_unit_of_the_system(
    system: str, unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = SimpleNamespace(ru_maxrss=3 * 2**20 * 2**20 // (2**30 // unit))
    monkeypatch.setattr(resource, "getrusage", lambda _: used)
    monkeypatch.setattr(sys, "platform", system)
    assert peak_memory() == {"peak_memory_mib": 3 * 2**10}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5 * 1024 * 1024)
    assert peak_memory() == {"peak_memory_mib": 3 * 2**10, "peak_gpu_memory_mib": 5}


def test_machines_are_described_with_their_gpu_and_what_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(name: str) -> str:
        if name == "vepm":
            raise importlib.metadata.PackageNotFoundError
        return f"{name} 1"

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    found = describe_machine()
    assert (found["gpu"], found["vepm"], found["numpy"]) == ("Some GPU", None, "numpy 1")
    assert found["threads"] == torch.get_num_threads()


@pytest.mark.parametrize(("changes", "mark"), [("", ""), (" M src/vepm/files.py\n", "+")])
def test_code_that_has_changed_since_its_commit_is_marked(
    changes: str, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter(["abc\n", changes])
    monkeypatch.setattr(Path, "exists", lambda _: True)
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: next(said))
    assert runs._commit_of_tree.__wrapped__() == f"abc{mark}"


def test_without_git_there_is_no_commit_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "exists", lambda _: True)
    monkeypatch.setattr(subprocess, "check_output", fail)
    assert runs._commit_of_tree.__wrapped__() is None
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert runs._commit_of_tree.__wrapped__() is None
    monkeypatch.setenv("VEPM_COMMIT", " abc ")
    assert commit() == "abc"
