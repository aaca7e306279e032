"""What commands print, word for word."""

from pathlib import Path
from typing import Any

import pytest
import torch

from vepm import console
from vepm.evaluation import RunResult
from vepm.tasks import TASKS

RUN: dict[str, Any] = {
    "dataset": "pets",
    "test_accuracy": 0.75,
    "baselines": {"gcn": {"test_accuracy": None}},
    "num_train": 7,
    "rule": "the best",
    "seed": 3,
    "epochs": 5,
    "seconds": 61.0,
    "peak_memory_mib": 300.0,
    "warnings": [],
}


def result(method: str, seed: int) -> RunResult:
    curve = {"val_accuracy": [0.5], "val_loss": [1.0], "test_accuracy": [0.25]}
    measures = TASKS["node"].measures(torch.eye(2), torch.tensor([0, 1]))
    return RunResult.from_curve(method, "pets", "own", seed, curve, measures=measures)


def test_links_are_shown_in_percent(capsys: pytest.CaptureFixture[str]) -> None:
    measures = {"auc": 0.912, "average_precision": 0.8, "calibration_error": 0.034}
    console.print_links({**RUN, **measures}, Path("out"))
    said = capsys.readouterr().out
    assert "AUC 91.2 %, average precision 80.0 %, calibration error 3.4 %" in said
    assert "missing.csv and edges.csv in out" in said


def test_a_run_is_shown_beside_its_baselines(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_run(RUN, Path("out"))
    said = capsys.readouterr().out
    assert "pets: 7 training labels, the same for all" in said
    assert "75.0 %" in said
    assert "epoch: the best" in said
    assert "one run, seed 3" in said
    assert "model:" not in said
    console.print_run({**RUN, "baselines": {}}, Path("out"))
    assert "pets: 7 training labels\n" in capsys.readouterr().out


def test_an_evaluation_names_its_method_and_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    measured = [[result("vepm", 4), result("vepm", 2)], [result("gcn", 2), result("gcn", 4)]]
    console.print_evaluation(measured, ["validation"], as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "vepm on pets: 2 runs, seeds 2-4" in said
    assert "25.0" in said
    console.print_evaluation(measured, ["validation"], as_json=True)
    assert '"baselines": {"gcn"' in capsys.readouterr().out
