"""A disk that fills up: a clear line, nothing half written, and a way to go on."""

import contextlib
import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.running import QUICK, hidden_in, names_in, read_json, same_tensors, succeed, vepm
from paper.toys import write_toys
from vepm.search import tuning
from vepm.training import fitting, saving

pytestmark = pytest.mark.usefixtures("no_page")

ROOM = "4m"
FULL = "files written before are complete: make room and give the command again"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with little room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only the superuser can mount a small disk")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", disk], check=False)
    if made.returncode:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(2**12))


def check_one_line(outcome: Any, path: Path) -> None:
    assert outcome.code == 1
    assert outcome.err.startswith(f"error: {path}: ")
    assert FULL in outcome.err
    assert outcome.err.count("\n") == 1


def test_training_on_a_disk_that_fills_up(
    small_disk: Path, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[bytes] = []
    run = small_disk / "run"

    def save_and_fill(path: Path, *rest: Any) -> None:
        saving.save_state(path, *rest)
        saved.append(path.read_bytes())
        if len(saved) == 4:
            fill(small_disk)

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "SECONDS_BETWEEN_SAVES", 0.0)
        patch.setattr(fitting, "save_state", save_and_fill)
        check_one_line(vepm("train", pets, "-o", run, *QUICK), run / "checkpoint.safetensors")
    assert names_in(run) == {"checkpoint.safetensors"}
    assert (run / "checkpoint.safetensors").read_bytes() == saved[-1]
    (small_disk / "filler").unlink()
    succeed("train", pets, "-o", run, *QUICK)
    succeed("train", pets, "-o", tmp_path / "whole", *QUICK)
    assert same_tensors(run / "model.safetensors", tmp_path / "whole" / "model.safetensors")
    assert names_in(run) == names_in(tmp_path / "whole")


def test_predictions_on_a_full_disk(small_disk: Path, pets: Path, pets_run: Path) -> None:
    fill(small_disk)
    outcome = vepm("predict", pets_run, pets, "-o", small_disk / "predictions.csv")
    check_one_line(outcome, small_disk / "predictions.csv")
    assert names_in(small_disk) == {"filler"}


def test_tuning_on_a_disk_that_fills_up(
    small_disk: Path, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = []
    fit = tuning.fit  # type: ignore[attr-defined]

    def fit_and_fill(*given: Any, **named: Any) -> Any:
        trainings.append(1)
        if len(trainings) == 2:
            fill(small_disk)
        return fit(*given, **named)

    words = ("tune", pets, *QUICK, "--trials", "3")
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "fit", fit_and_fill)
        outcome = vepm(*words, "-o", small_disk / "tuned")
    assert outcome.code == 1, outcome
    assert FULL in outcome.err
    assert outcome.err.count("\n") == 1
    (small_disk / "filler").unlink()
    folders = (small_disk / "tuned", tmp_path / "whole")
    for folder in folders:
        succeed(*words, "-o", folder)
    tuned, whole = (read_json(folder / "summary.json") for folder in folders)
    for name in ("best", "default", "improvement"):
        assert tuned[name] == whole[name]


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Without a disk of one's own: no file may grow beyond some bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


WORDS: dict[str, tuple[str, ...]] = {
    "tune": ("pets", *QUICK, "--trials", "2", "-o"),
    "reproduce": ("table-1", "--experiments", "toys", "--datasets", "planted", "--jobs", "1", "-o"),
}


@pytest.mark.parametrize("size", [0, 100, 1000])
@pytest.mark.parametrize("command", WORDS)
def test_a_command_whose_files_may_not_grow_goes_on_when_they_may(
    command: str, size: int, pets: Path
) -> None:
    Path("pets").symlink_to(pets)
    write_toys(Path("toys"))
    output = Path("found")
    with files_of_at_most(size):
        outcome = vepm(command, *WORDS[command], output)
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].startswith("error: ")
    assert FULL in outcome.err
    assert not Path("found").exists() or hidden_in(Path("found")) == []
    succeed(command, *WORDS[command], output)
    assert hidden_in(Path("found")) == []


@pytest.mark.parametrize("command", ["tune", "reproduce"])
def test_unfinished_files_of_a_killed_command_are_removed(command: str, pets: Path) -> None:
    Path("pets").symlink_to(pets)
    write_toys(Path("toys"))
    succeed(command, *WORDS[command], "found")
    for folder in [path for path in Path("found").rglob("*") if path.is_dir()] or [Path("found")]:
        (folder / ".a.json.01234567.half").write_bytes(b"cut sh")
    succeed(command, *WORDS[command], "found")
    assert hidden_in(Path("found")) == []


def test_files_that_may_not_grow(pets: Path, pets_run: Path, tmp_path: Path) -> None:
    with files_of_at_most(400):
        outcome = vepm("predict", pets_run, pets, "-o", tmp_path / "predictions.csv")
    check_one_line(outcome, tmp_path / "predictions.csv")
    assert os.strerror(errno.EFBIG) in outcome.err
    assert names_in(tmp_path) == set()
