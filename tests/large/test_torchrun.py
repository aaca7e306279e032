"""One model trained by two processes of torchrun; one of them dies, and the run goes on later."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.running import read_json, read_rows, refused, same_tensors, succeed, wait_for

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
ONE_HOST = ("--standalone", "--nproc_per_node", "2")
TRAIN = ("train", "planted:nodes=120,edges=500,communities=3,features=6", "--device", "cpu")
SMALL = {
    "batch_size": 30,
    "num_communities": 3,
    "num_metacommunities": 3,
    "hidden_channels": 9,
    "pretrain_epochs": 4,
    "epochs": 6,
    "patience": 0,
    "num_samples": 0,
}
SETTINGS = tuple(word for item in SMALL.items() for word in ("--set", "=".join(map(str, item))))
COMMAND = """
import os, sys, time
from pathlib import Path
from vepm.training import fitting
import vepm.cli.jobs
vepm.cli.jobs.write_report = lambda folder: folder / "report.html"
fitting.SECONDS_BETWEEN_SAVES = 0.0
if "SLOWLY" in os.environ:
    Path(f"pid-{os.environ['RANK']}").write_text(str(os.getpid()))
    save = fitting.save_state
    def save_and_wait(*args):
        save(*args)
        time.sleep(0.5)
    fitting.save_state = save_and_wait
from vepm.cli import main
main()
"""
"""The command line without a page, with a checkpoint after every epoch."""
PATIENCE_SECONDS = 120


def start(
    folder: str, hosts: Sequence[str] = ONE_HOST, **environment: str
) -> subprocess.Popen[str]:
    Path("command.py").write_text(COMMAND)
    words = [*TORCHRUN, *hosts, "command.py", *TRAIN, *SETTINGS, "-o", folder, "--json"]
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    return process.returncode, out, err


def timeless(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_two_processes_train_one_model_and_survive_a_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = finish(start("whole"))
    assert code == 0, err
    # The first process prints, and only it.
    printed = json.loads(out)
    assert printed == read_json(Path("whole/metrics.json"))
    rows = read_rows(Path("whole/history.csv"))
    assert len(rows) == 10
    assert float(rows[3]["loss"]) < float(rows[0]["loss"])

    process = start("killed", SLOWLY="yes")
    try:
        wait_for(Path("killed/checkpoint.safetensors"), process)
        os.kill(int(Path("pid-1").read_text()), signal.SIGKILL)
    finally:
        code, _, err = finish(process)
    assert code != 0
    assert "to continue from killed, give the same command again" in err
    assert not Path("killed/metrics.json").exists()
    assert Path("killed/checkpoint.safetensors").exists()

    line = refused(*TRAIN, *SETTINGS, "-o", "killed")
    assert "other settings, seed, data or number of processes" in line
    code, out, err = finish(start("killed"))
    assert code == 0, err
    assert timeless(read_rows(Path("killed/history.csv"))) == timeless(rows)
    assert same_tensors(Path("killed/model.safetensors"), Path("whole/model.safetensors"))


def test_two_hosts_train_what_one_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = ("--nnodes", "2", "--nproc_per_node", "1", "--master_addr", "127.0.0.1")
    hosts = [
        start("hosts", (*place, "--master_port", port, "--node_rank", number)) for number in "01"
    ]
    for code, _, err in map(finish, hosts):
        assert code == 0, err
    code, _, err = finish(start("whole"))
    assert code == 0, err
    assert same_tensors(Path("hosts/model.safetensors"), Path("whole/model.safetensors"))


def test_evaluation_is_shared_between_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ("--set", "pretrain_epochs=2", "--set", "epochs=2", "--device", "cpu", "--json")
    words = ["evaluate", "KarateClub", "--seeds", "3", *few]
    done = subprocess.run(
        [*TORCHRUN, *ONE_HOST, "-m", "vepm", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    alone = json.loads(succeed(*words, "--jobs", "1").out)
    shared = json.loads(done.stdout)
    assert shared["mean"] == alone["mean"]
    assert [run["seed"] for run in shared["runs"]] == [0, 1, 2]
    scores = [[run["test_accuracy"] for run in found["runs"]] for found in (shared, alone)]
    assert scores[0] == scores[1]
