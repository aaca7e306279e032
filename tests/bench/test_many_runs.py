"""Many runs at once beside one alone: the report says what was run and how long it took."""

import json
import statistics
import sys
from pathlib import Path

import pytest

from benchmarks import many_runs
from training.toys import toy


def test_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "together.json"
    words = f"--output {path} --device cpu --datasets planted --seeds 3 --epochs 1 --alone 2"
    monkeypatch.setattr(sys, "argv", ["many_runs", *words.split()])
    many_runs.main()
    report = json.loads(path.read_text())
    assert report["machine"]["torch"]
    (case,) = report["cases"]
    assert (case["dataset"], case["runs"], len(case["alone"])) == ("planted", 3, 2)
    assert case["settings"]["training"]["epochs"] == 1
    assert [row["epochs"] for row in case["alone"]] == [[2], [2]]
    assert case["together"]["epochs"] == [2, 2, 2]
    assert len(case["together"]["test_accuracy"]) == 3
    alone = statistics.median(row["seconds"] for row in case["alone"])
    assert case["ratio"] == pytest.approx(case["together"]["seconds"] / alone)
    assert f"ratio {case['ratio']:.2f}" in capsys.readouterr().out


def test_folds_of_a_set_of_graphs() -> None:
    runs = many_runs.runs_of(toy("graph"), seeds=20, folds=3)
    assert [run.seed for run in runs] == [0, 0, 0]
    assert len({tuple(run.train_on.tolist()) for run in runs}) == 3
