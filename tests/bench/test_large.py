"""The record of training on a large graph, on a small one."""

from pathlib import Path
from unittest import mock

from benchmarks.large import main
from cli.running import read_json


def test_every_stage_is_recorded(tmp_path: Path) -> None:
    words = ["large", "--nodes", "800", "--edges", "3200", "--batch-nodes", "200"]
    words += ["--epochs", "2", "--output"]
    with mock.patch("sys.argv", [*words, str(tmp_path / "large.json")]):
        main()
    report = read_json(tmp_path / "large.json")
    assert [row["stage"] for row in report["stages"]] == [
        "generate",
        "pretrain epoch 1",
        "pretrain epoch 2",
        "finetune epoch 1",
        "finetune epoch 2",
        "cluster and train",
        "predict",
    ]
    peaks = [row["peak_memory_mib"] for row in report["stages"]]
    assert peaks == sorted(peaks)
    assert report["peak_memory_mib"] >= peaks[-1] > 0
    assert 0 <= report["test_accuracy"] <= 1
    assert report["settings"]["training"]["batch_size"] == 200
