"""The benchmark of a CPU: the methods of the command and the literal construction."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import bandwidth, cpu
from benchmarks.bars import bars


def test_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bandwidth.BYTES, "cpu", 2**20)
    path = tmp_path / "cpu.json"
    methods = ("ours", "gcn", "gat", "literal", "diagonal", "matrix", "posterior")
    words = f"--datasets KarateClub --sizes 4000 --methods {' '.join(methods)} "
    words += f"--repeats 1 --threads 1 --output {path}"
    monkeypatch.setattr(sys, "argv", ["cpu", *words.split()])
    cpu.main()
    report = json.loads(path.read_text())
    assert report["copy_bandwidth"] > 1e6
    assert {(row["graph"], row["method"]) for row in report["rows"]} == {
        (graph, method) for graph in ("KarateClub", "generated-4000") for method in methods
    }
    assert not any("error" in row for row in report["rows"])
    assert bars(report) == []
