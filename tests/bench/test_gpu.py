"""The benchmark of the GPU, as far as it can be tested without one."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from vepm.bench import Plan, Row

pytest.importorskip("triton", reason="Triton is not installed")

from benchmarks import gpu
from benchmarks.gpu_ddp import check_ddp
from benchmarks.gpu_equality import relative_error
from benchmarks.gpu_kernels import least_bytes


def report() -> Row:
    return {"rows": [], "kernels": [], "checks": [], "sections": {}}


def sleepy(plan: Plan) -> Iterator[tuple[str, Row]]:
    yield "kernels", {"what": "first", "seconds": 1.0}
    time.sleep(60)
    yield "kernels", {"what": "never", "seconds": 1.0}


def broken(plan: Plan) -> Iterator[tuple[str, Row]]:
    yield "kernels", {"what": "second", "seconds": float("it broke")}


def test_a_section_that_takes_too_long_keeps_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "SECTIONS", {"sleepy": (sleepy, 1), "broken": (broken, 5)})
    found, path = report(), tmp_path / "gpu.json"
    for name in "sleepy", "broken":
        gpu._run(name, Plan(), found, path)
    written = json.loads(path.read_text())
    assert [row["what"] for row in written["kernels"]] == ["first"]
    assert written["sections"]["sleepy"]["seconds"] >= 1
    outcomes = {name: section["outcome"] for name, section in written["sections"].items()}
    assert outcomes == {
        "sleepy": "out of time",
        "broken": "could not convert string to float: 'it broke'",
    }


def test_bytes_are_counted_per_edge_and_per_row() -> None:
    # A column and two numbers for each of 3 edges; a pointer's two, two in and one out for 2 rows.
    assert least_bytes(2, 3, read=(1, 1), row=(2,), out=(1,)) == 4 * (3 * 3 + 2 * 5)


def test_what_is_not_finite_is_as_wrong_as_can_be() -> None:
    assert relative_error(torch.ones(2), torch.ones(2)) == 0
    assert relative_error(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu"])
    with pytest.raises(SystemExit, match="no CUDA device"):
        gpu.main()


def test_a_process_group_of_one_has_the_gradients_of_none() -> None:
    rows = list(check_ddp("cpu"))
    assert len(rows) == 2
    assert all(row["ok"] and row["error"] > 0 for row in rows)
