"""What is logged for TensorBoard is what happened."""

import csv
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from cli.running import QUICK, succeed, vepm
from vepm.cli.train import checked_log
from vepm.errors import InputError

from .toys import run as run_toy

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
)


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Every scalar in a folder of events, by tag and step."""
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: {event.step: event.value for event in events.Scalars(tag)}
        for tag in events.Tags()["scalars"]
    }


def test_a_run_is_logged_with_every_term(tmp_path: Path) -> None:
    run = tmp_path / "run"
    succeed("train", "KarateClub", *QUICK, "-o", run, "--log", "tensorboard")
    history = list(csv.DictReader((run / "history.csv").read_text().splitlines()))
    for phase in ("pretrain", "finetune"):
        rows = [row for row in history if row["phase"] == phase]
        found = scalars(run / "tensorboard" / phase)
        terms = {name for row in rows for name, cell in row.items() if cell}
        assert set(found) == terms - {"phase", "epoch"}
        for row in rows:
            for name in found:
                if row[name]:
                    logged = found[name][int(row["epoch"])]
                    assert logged == pytest.approx(float(row[name]), rel=1e-6)


def test_validation_terms_are_logged(tmp_path: Path) -> None:
    with ExitStack() as ended:
        run_toy("node", progress=checked_log("tensorboard", tmp_path, ended))
    assert {"val_accuracy", "val_loss"} <= set(scalars(tmp_path / "tensorboard" / "finetune"))


def test_resumed_run_replaces_the_epochs_it_repeats(tmp_path: Path) -> None:
    for first, last, loss in ((0, 5, 1.0), (3, 8, 2.0)):
        with ExitStack() as ended:
            log = checked_log("tensorboard", tmp_path, ended)
            for epoch in range(first, last):
                log("pretrain", epoch + 1, 8, {"phase": "pretrain", "epoch": epoch, "loss": loss})
    found = scalars(tmp_path / "tensorboard" / "pretrain")["loss"]
    assert found == {epoch: 1.0 if epoch < 3 else 2.0 for epoch in range(8)}


def test_unknown_log_is_refused() -> None:
    with pytest.raises(InputError, match="choose from tensorboard"):
        checked_log("paper", Path(), ExitStack())


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    outcome = vepm("train", "KarateClub", "--log", "tensorboard", "-o", tmp_path / "run")
    assert outcome.code == 2
    assert "pip install 'vepm[tensorboard]'" in outcome.err
    assert not (tmp_path / "run").exists()
