"""Short versions of ``make soak``."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from cli.conftest import without_page
from cli.running import vepm
from tools.soak.fuzz import fuzz
from tools.soak.kills import SCENARIOS, kill
from tools.soak.repeat import Sample, judge, repeat
from tools.soak.targets import KINDS, Target, targets
from vepm.errors import InputError

INPUTS = 400
KILLS = 1


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs_are_taken_or_refused_in_one_line(kind: str) -> None:
    found = fuzz(INPUTS, kind)
    assert found.wrong == []
    assert found.taken.total() + found.refused.total() == INPUTS
    assert set(found.taken) | set(found.refused) == set(targets(kind))
    assert found.refused.total() > 0


def laid_out(kind: str, case: str, folder: Path) -> Path:
    """A damaged input for the command, in a folder of its own."""
    target = targets()[kind]
    assert isinstance(target, Target)
    target.lay_out(folder)
    name, content = target.damage(Random(case))
    (folder / name).write_bytes(content)
    return folder if kind.startswith("csv") else folder / name


def check_outcome(code: int, said: str, run: Path) -> None:
    """Done, or refused in one last line and nothing left behind."""
    assert code in (0, 2), said
    assert "Traceback" not in said
    if code == 2:
        assert said.splitlines()[-1].startswith("error: ")
        assert not run.exists()


@pytest.mark.parametrize("kind", ["csv of nodes", "csv of graphs", "graphml", "npz"])
def test_damaged_graphs_given_to_the_command(kind: str, tmp_path: Path) -> None:
    brief = ("--set", "epochs=1", "--set", "pretrain_epochs=1", "--device", "cpu")
    with without_page():
        for number in range(8):
            given = laid_out(kind, f"command/{kind}/{number}", tmp_path / str(number))
            run = tmp_path / f"run-{number}"
            outcome = vepm("train", given, "-o", run, *brief)
            check_outcome(outcome.code, outcome.err, run)


def test_a_damaged_graph_given_to_a_process_of_its_own(tmp_path: Path) -> None:
    given = laid_out("npz", "process/npz/3", tmp_path / "given")
    words = [sys.executable, "-m", "vepm", "train", str(given), "-o", str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    check_outcome(done.returncode, done.stderr, tmp_path / "run")


@pytest.mark.parametrize("name", targets())
def test_whole_files_are_taken_and_others_refused(name: str, tmp_path: Path) -> None:
    target = targets()[name]
    assert isinstance(target, Target)
    target.lay_out(tmp_path)
    target.read(tmp_path)
    found = {str(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*.*")}
    assert found == target.files
    for damaged in target.damaged:
        (tmp_path / damaged).write_bytes(b"\xff\n\xff\n")
        with pytest.raises(InputError) as caught:
            target.read(tmp_path)
        assert "\n" not in str(caught.value)
        (tmp_path / damaged).write_bytes(target.files[damaged])


def test_killed_commands_end_with_the_files_of_whole_ones() -> None:
    found = kill(KILLS)
    assert {name: part["kills"] for name, part in found.items()} == dict.fromkeys(SCENARIOS, KILLS)
    assert [part["wrong"] for part in found.values() if part["wrong"]] == []


def test_training_predicting_and_reporting_again_leaks_no_descriptor() -> None:
    found = judge(repeat(0, least=2))
    assert found["cycles"] == 2
    assert not found["descriptors_leaked"]


def series(mib_per_cycle: float, descriptors_per_cycle: int) -> list[Sample]:
    """An hour of cycles whose memory wavers by a few MiB."""
    return [
        Sample(60.0 * i, 500 + 3 * (i % 3) + mib_per_cycle * i, 10 + descriptors_per_cycle * i)
        for i in range(60)
    ]


def test_leaks_are_told_from_noise() -> None:
    assert not judge(series(0, 0))["memory_grew"]
    assert not judge(series(0, 0))["descriptors_leaked"]
    assert judge(series(0.5, 0))["memory_grew"]
    assert judge(series(0, 1))["descriptors_leaked"]
