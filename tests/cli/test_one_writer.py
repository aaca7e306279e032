"""Two processes told to write the same folder: the second stops with a clear line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.running import QUICK, hidden_in, names_in, refused, succeed, vepm
from paper.toys import write_toys
from vepm.cli.folders import only_writer

HOLD = """
import sys, time
from pathlib import Path
from vepm.cli.folders import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_page_is_not_written_into_a_run_under_way(pets_run: Path) -> None:
    with only_writer(pets_run):
        assert "another process is writing" in refused("report", pets_run)


def test_results_have_one_writer_by_experiment(tmp_path: Path) -> None:
    toys = write_toys(tmp_path / "toys")
    words = ("reproduce", "--experiments", toys, "--data-dir", tmp_path, "-o", "out", "--jobs", "1")
    with only_writer(Path("out/table-2")):
        assert "out/table-2: another process" in refused(*words, "table-2")
        outcome = vepm(*words, "table-1", "--rows", "GCN", "--datasets", "planted", "--seeds", "1")
        assert outcome.code == 0, outcome.err
    assert not hidden_in(Path("out"))


def test_a_killed_holder_lets_go(pets: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, "run"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    assert "another process" in refused("train", pets, "-o", "run", *QUICK)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert names_in(Path("run")) == set()
    for _ in range(100):
        if vepm("report", "run").err.count("another process") == 0:
            break
        time.sleep(0.05)
    with only_writer(Path("run")):
        assert Path("run").is_dir()


@pytest.mark.usefixtures("no_page")
def test_strictness_is_up_to_the_user(pets: Path, tmp_path: Path) -> None:
    untidy = tmp_path / "untidy"
    untidy.mkdir()
    for name in ("nodes.csv", "edges.csv"):
        (untidy / name).write_bytes((pets / name).read_bytes())
    with (untidy / "edges.csv").open("a") as file:
        file.write("n0,n0\n")
    for command in ("train", "communities", "evaluate", "tune"):
        line = refused(command, untidy, "--strict")
        assert "removed 1 self-loop; correct the edges" in line
        assert "without --strict" in line
    assert "removed 1 self-loop" in succeed("train", untidy, "-o", "run", *QUICK).err
    assert "removed 1 self-loop" in refused("predict", "run", untidy, "--strict")
    assert names_in(tmp_path) == {"untidy", "run"}
