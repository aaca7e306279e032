"""Runs that are stopped, by their user or by force, and two that want the same folder."""

import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from cli.conftest import without_page
from cli.running import (
    QUICK,
    hidden_in,
    names_in,
    read_json,
    read_rows,
    refused,
    same_tensors,
    start_slowly,
    succeed,
    vepm,
    wait_for,
)
from cli.writing import write_nodes

pytestmark = pytest.mark.usefixtures("no_page")

LONG = ("--set", "epochs=50", "--set", "pretrain_epochs=40", "--set", "patience=0")
VARYING = {"seconds", "peak_memory_mib", "command"}
PATIENCE_SECONDS = 60
NOBODY = 65534


def stop(process: subprocess.Popen[str], how: signal.Signals) -> tuple[int, str, str]:
    process.send_signal(how)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


def saved_history(checkpoint: Path) -> list[dict[str, Any]]:
    with safe_open(checkpoint, framework="pt") as file:
        history: list[dict[str, Any]] = json.loads(file.metadata()["vepm"])["history"]
    return history


def lasting(folder: Path) -> dict[str, Any]:
    metrics = read_json(folder / "metrics.json")
    return {name: value for name, value in metrics.items() if name not in VARYING}


@pytest.fixture(scope="module")
def whole_run(pets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    with without_page():
        succeed("train", pets, "-o", folder, *LONG)
    return folder


@pytest.fixture
def running(pets: Path) -> Iterator[subprocess.Popen[str]]:
    """A slow run in the folder ``run``, past its first epoch."""
    process = start_slowly("train", pets, "-o", "run", *LONG)
    try:
        wait_for(Path("run/checkpoint.safetensors"), process)
        yield process
    finally:
        process.kill()
        process.wait()


def check_resumed(pets: Path, whole_run: Path) -> None:
    """Give the same command again: it goes on from what was saved and ends as if never stopped."""
    before = saved_history(Path("run/checkpoint.safetensors"))
    assert 0 < len(before) < 90
    succeed("train", pets, "-o", "run", *LONG)
    rows = read_rows(Path("run/history.csv"))
    assert [row["seconds"] for row in rows[: len(before)]] == [str(r["seconds"]) for r in before]
    assert lasting(Path("run")) == lasting(whole_run)
    for name in ("model.safetensors", "outputs.safetensors"):
        assert same_tensors(Path("run", name), whole_run / name)
    assert names_in(Path("run")) - {"figures"} == names_in(whole_run)
    assert not hidden_in(Path("run"))


def test_an_interrupted_run_goes_on(
    running: subprocess.Popen[str], pets: Path, whole_run: Path
) -> None:
    assert "another process is writing to this folder" in refused("train", pets, "-o", "run", *LONG)
    assert "another process" in refused("train", pets, "-o", "run", "--overwrite", *LONG)
    code, out, err = stop(running, signal.SIGINT)
    assert (code, out) == (130, "")
    assert err == "stopped; to continue from run, give the same command again\n"
    assert names_in(Path("run")) == {"checkpoint.safetensors"}
    check_resumed(pets, whole_run)


def test_a_killed_run_goes_on(running: subprocess.Popen[str], pets: Path, whole_run: Path) -> None:
    time.sleep(random.random())
    code, _, _ = stop(running, signal.SIGKILL)
    assert code == -signal.SIGKILL
    Path("run/.checkpoint.safetensors.01234567.half").write_bytes(b"cut sh")
    Path("run/figures").mkdir()
    Path("run/figures/.history.png.89abcdef.half").write_bytes(b"cut sh")
    check_resumed(pets, whole_run)


def test_a_run_told_to_end_goes_on(
    running: subprocess.Popen[str], pets: Path, whole_run: Path
) -> None:
    code, out, err = stop(running, signal.SIGTERM)
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert err.startswith("stopped; to continue from run, give the same command again")
    assert names_in(Path("run")) == {"checkpoint.safetensors"}
    check_resumed(pets, whole_run)


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_stopped_before_the_first_epoch(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vepm.training.fit_many", interrupt)
    outcome = vepm("train", pets, "-o", "run")
    assert (outcome.code, outcome.out) == (130, "")
    assert "give the same command again" in outcome.err
    assert names_in(tmp_path) == set()


def baseline_trained_again(*_: object, **__: object) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        ("train", "jobs.write_run"),
        ("train", "jobs.write_report"),
        ("communities", "jobs.write_run"),
        ("communities", "communities.write_communities"),
        ("communities", "jobs.write_report"),
    ],
)
def test_stopped_after_training(
    command: str, moment: str, pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = ("--baselines", "gcn") if command == "train" else ()
    again = (command, pets, *QUICK, *peers, "-o")
    succeed(*again, "whole")
    with monkeypatch.context() as patch:
        patch.setattr(f"vepm.cli.{moment}", interrupt)
        outcome = vepm(*again, "run")
    assert outcome.code == 130
    assert outcome.err.startswith("stopped; to continue from run, give the same command again")
    trained = [
        [row["seconds"] for row in saved_history(path)]
        for path in Path("run").glob("checkpoint*.safetensors")
    ]
    with monkeypatch.context() as patch:
        if moment == "jobs.write_report":
            patch.setattr("vepm.baselines.Baseline.__call__", baseline_trained_again)
        succeed(*again, "run")
    assert [float(row["seconds"]) for row in read_rows(Path("run/history.csv"))] in trained
    assert names_in(Path("run")) == names_in(Path("whole"))
    assert lasting(Path("run")) == lasting(Path("whole"))
    assert "holds a finished run" in refused(*again, "run")


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Permissions do not bind the superuser."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(mine)


def test_a_folder_that_cannot_be_written_to() -> None:
    # Not below the folders that pytest makes, which only their owner may enter.
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        pets = write_nodes(place / "pets")
        place.chmod(0o555)
        with ordinary_user():
            line = refused("train", pets, "-o", place / "new" / "run")
        place.chmod(0o755)
        assert f"{place}/new/run: cannot be written to (Permission denied)" in line
        assert names_in(place) == {"pets"}
