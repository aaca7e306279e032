"""``vepm tune`` as a user meets it, also when it is killed."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.running import succeed, vepm
from vepm import console
from vepm.cli.folders import only_writer
from vepm.training.config import TRIED

SEARCH = ("tune", "planted", "--device", "cpu", "--trials", "4")
QUICK = """
[model]
hidden_channels = 8
[training]
pretrain_epochs = 2
epochs = 6
"""
SPACE = """
learning_rate = {low = 1e-3, high = 1e-1, log = true}
num_metacommunities = [2, 4, 8]
"""
SLOW = """
import signal, sys, time
# Whoever runs the tests in the background has interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from vepm.search import tuning
fit = tuning.fit
def fit_and_wait(*args, **options):
    time.sleep(0.5)
    return fit(*args, **options)
tuning.fit = fit_and_wait
from vepm.cli import main
main()
"""
"""The command line with time to stop it in the middle of a trial."""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "quick.toml").write_text(QUICK)
    (tmp_path / "space.toml").write_text(SPACE)
    return ["--config", str(tmp_path / "quick.toml"), "--space", str(tmp_path / "space.toml")]


def trials_in(folder: Path) -> list[dict[str, Any]]:
    path = folder / "trials.jsonl"
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    return [json.loads(line) | {"seconds": 0} for line in lines]


def start(folder: Path, files: list[str], finished: int) -> "subprocess.Popen[str]":
    """A search in a process of its own, in the middle of the trial after the finished ones."""
    command = [sys.executable, "-c", SLOW, *SEARCH, *files, "-o", str(folder)]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    deadline = time.monotonic() + 300
    while len(trials_in(folder)) < finished:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.1)
    return process


def test_killed_search_loses_no_trial(tmp_path: Path, files: list[str]) -> None:
    folder, whole = tmp_path / "killed", tmp_path / "whole"
    process = start(folder, files, finished=2)
    process.kill()
    process.communicate()
    before = trials_in(folder)
    assert 2 <= len(before) < 4
    outcome = succeed(*SEARCH, *files, "-o", folder, "--json")
    counts = json.loads(outcome.out)["trials"]
    assert counts["finished"] == 4
    after = trials_in(folder)
    assert after[: len(before)] == before
    succeed(*SEARCH, *files, "-o", whole)
    assert after == trials_in(whole)
    assert (folder / "best.toml").read_text() == (whole / "best.toml").read_text()


def test_interrupt_says_how_to_go_on(tmp_path: Path, files: list[str]) -> None:
    folder = tmp_path / "stopped"
    process = start(folder, files, finished=1)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "give the same command again" in said
    assert "Traceback" not in said
    assert len(trials_in(folder)) >= 1


def test_best_settings_can_be_trained(tmp_path: Path, files: list[str]) -> None:
    folder = tmp_path / "tuned"
    outcome = succeed(*SEARCH, *files, "-o", folder)
    assert outcome.err == ""
    summary = json.loads((folder / "summary.json").read_text())
    gain = summary["best"]["val_accuracy"] - summary["default"]["val_accuracy"]
    assert f"{100 * gain:+.2f} points over the default" in outcome.out
    best = folder / "best.toml"
    run = tmp_path / "run"
    succeed("train", "planted", "--config", best, "-o", run, "--device", "cpu")
    metrics = json.loads((run / "metrics.json").read_text())
    trained, found = (tomllib.loads(path.read_text()) for path in (run / "config.toml", best))
    assert found["model"]["partition"] == "auto"
    found["model"] |= TRIED[next(iter(metrics["partitions"]))]
    assert trained == found
    assert metrics["epochs"] == 14
    assert summary["best"]["val_accuracy"] >= summary["default"]["val_accuracy"]


def test_overwrite_starts_anew(tmp_path: Path, files: list[str]) -> None:
    folder = tmp_path / "tuned"
    one = ["tune", "planted", "--device", "cpu", "--trials", "1", *files, "-o", str(folder)]
    succeed(*one)
    outcome = vepm(*one, "--seeds", "2")
    assert outcome.code == 2
    assert "other seeds" in outcome.err
    outcome = succeed(*one, "--seeds", "2", "--overwrite", "--json")
    assert json.loads(outcome.out)["seeds"] == [0, 1]


def test_second_writer_is_refused(tmp_path: Path, files: list[str]) -> None:
    with only_writer(tmp_path / "busy"):
        outcome = vepm(*SEARCH, *files, "-o", tmp_path / "busy")
    assert outcome.code == 2
    assert "another process" in outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("KarateClub",), "to validate on"),
        (("planted", "--space", "none.toml"), "none.toml"),
        (("planted", "--device", "abacus"), "abacus"),
        (("planted", "--preset", "none"), "no preset"),
        (("nowhere",), "nowhere"),
    ],
)
def test_bad_input_takes_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    outcome = vepm("tune", *words, "-o", tmp_path / "out")
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not (tmp_path / "out" / "trials.jsonl").exists()


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_shows_a_bar(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=True, width=100))
    succeed("tune", "planted", "--device", "cpu", "--trials", "1", *files, "-o", tmp_path / "out")
    assert "trials on planted" in screen.getvalue()
    assert "1/1" in screen.getvalue()
    assert "best validation 0." in screen.getvalue()


def test_missing_optuna_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    outcome = vepm("tune", "planted")
    assert outcome.code == 2
    assert "pip install 'vepm[tune]'" in outcome.err


@pytest.mark.parametrize("dataset", ["planted", "digits-graphs"])
def test_folds_that_overlap_with_the_search_are_warned_of(dataset: str, tmp_path: Path) -> None:
    """Only graphs are tested in folds; nodes keep the test part that the search has not seen."""
    few = tmp_path / "few.toml"
    few.write_text("[training]\npretrain_epochs = 1\nepochs = 1\n")
    words = ("tune", dataset, "--device", "cpu", "--trials", "1", "--config", few)
    printed = succeed(*words, "-o", tmp_path / "out").out
    assert ("`vepm evaluate` also tests on graphs" in printed) is (dataset != "planted")
