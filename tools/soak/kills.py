"""Kill commands at random moments and resume them: the results equal those of an unbroken run.

Run it with ``python -m tools.soak.kills --kills 50``.
"""

import argparse
import csv
import functools
import os
import random
import signal
import sqlite3
import sys
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors import safe_open

from cli.conftest import without_page
from cli.running import hidden_in, read_json, read_rows, same_tensors, vepm
from cli.writing import write_nodes
from paper.toys import write_long
from tools.record import keep
from vepm.training import fitting

VARYING = {"seconds", "peak_memory_mib", "command", "machine", "commit", "checksum", "abandoned"}
LENGTH = ("--set", "pretrain_epochs=60", "--set", "epochs=60", "--set", "patience=0")
PAUSE_SECONDS = 0.01
"""Pause after every save, so that a small run lasts long enough to be killed anywhere."""


@dataclass(frozen=True)
class Scenario:
    """A command, the part of its duration in which it is killed, and its results."""

    words: Callable[[Path, Path], tuple[str | Path, ...]]
    """The command, given a folder of inputs and one to write to."""
    from_share: float
    to_share: float
    numbers: Callable[[Path], Any]


def _train(inputs: Path, output: Path) -> tuple[str | Path, ...]:
    return ("train", inputs / "pets", "-o", output, "--device", "cpu", *LENGTH)


def _tune(inputs: Path, output: Path) -> tuple[str | Path, ...]:
    short = ("--set", "pretrain_epochs=5", "--set", "epochs=15", "--trials", "5")
    return ("tune", inputs / "pets", "-o", output, "--device", "cpu", *short)


def _reproduce(inputs: Path, output: Path) -> tuple[str | Path, ...]:
    options = ("--experiments", inputs / "experiments", "--data-dir", inputs, "--device", "cpu")
    return ("reproduce", "table-1", "--datasets", "planted", "--jobs", "1", *options, "-o", output)


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(v) for key, v in value.items() if key not in VARYING}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def _run_numbers(folder: Path) -> Any:
    history = [_timeless(row) for row in read_rows(folder / "history.csv")]
    return _timeless(read_json(folder / "metrics.json")), history, _tensors(folder)


def _tensors(folder: Path) -> list["_File"]:
    return [_File(folder / name) for name in ("model.safetensors", "outputs.safetensors")]


class _File:
    """A file of tensors, equal to another with the same tensors."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _File) and same_tensors(self.path, other.path)

    __hash__ = None  # type: ignore[assignment]


def _trial_numbers(folder: Path) -> Any:
    trials = [_timeless(row) for row in read_rows(folder / "trials.csv")]
    return trials, _timeless(read_json(folder / "summary.json")), (folder / "best.toml").read_text()


def _cell_numbers(folder: Path) -> Any:
    cells = sorted(folder.rglob("cells/**/*.json"))
    bodies = {str(path.relative_to(folder)): _timeless(read_json(path)) for path in cells}
    return bodies, (folder / "table-1" / "table.csv").read_text()


SCENARIOS = {
    "pretrain": Scenario(_train, 0.0, 0.45, _run_numbers),
    "finetune": Scenario(_train, 0.45, 1.0, _run_numbers),
    "tune": Scenario(_tune, 0.0, 1.0, _trial_numbers),
    "reproduce": Scenario(_reproduce, 0.0, 1.0, _cell_numbers),
}


def check_readable(folder: Path) -> None:
    """Read every file that is not temporary; a half-written one could not be read."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            _READERS.get(path.suffix, Path.read_bytes)(path)


def _read_tensors(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            file.get_tensor(name)


def _read_table(path: Path) -> None:
    with path.open(newline="") as file:
        widths = {len(row) for row in csv.reader(file, strict=True)}
    assert len(widths) == 1


def _read_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)


_READERS: dict[str, Callable[[Path], Any]] = {
    ".safetensors": _read_tensors,
    ".json": read_json,
    ".csv": _read_table,
    ".toml": lambda path: tomllib.loads(path.read_text()),
    ".db": _read_database,
}


def _child(words: tuple[str | Path, ...]) -> int:
    """Run a command slowly in a process of its own, saving after every epoch."""
    sys.stdout.flush()
    with warnings.catch_warnings():
        # Other threads of a test runner hold nothing that the command needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    save = fitting.save_state  # type: ignore[attr-defined]

    @functools.wraps(save)
    def save_and_wait(*given: Any) -> None:
        save(*given)
        time.sleep(PAUSE_SECONDS)

    fitting.save_state = save_and_wait  # type: ignore[attr-defined, assignment]
    fitting.SECONDS_BETWEEN_SAVES = 0.0
    with without_page():
        outcome = vepm(*words)
    if outcome.code:
        os.write(2, outcome.err.encode())
    os._exit(outcome.code)


def _finish(words: tuple[str | Path, ...]) -> float:
    started = time.monotonic()
    _, status = os.waitpid(_child(words), 0)
    assert os.waitstatus_to_exitcode(status) == 0, words
    return time.monotonic() - started


def _kill(words: tuple[str | Path, ...], after: float) -> bool:
    """Whether the command was still running when it was killed."""
    pid = _child(words)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def kill(kills: int, seed: int = 0) -> dict[str, Any]:
    """Kill so many runs, the scenarios in turn; then resume each and compare its results."""
    draw = random.Random(seed)
    killed: Counter[str] = Counter()
    with TemporaryDirectory() as name:
        inputs = Path(name)
        write_nodes(inputs / "pets")
        write_long(inputs / "experiments")
        whole: dict[str, tuple[float, Any]] = {}
        for number in range(10 * kills):
            if killed.total() >= kills:
                break
            kind = list(SCENARIOS)[number % len(SCENARIOS)]
            scenario = SCENARIOS[kind]
            if kind not in whole:
                folder = inputs / f"whole-{kind}"
                seconds = _finish(scenario.words(inputs, folder))
                whole[kind] = seconds, scenario.numbers(folder)
            words = scenario.words(inputs, inputs / f"run-{number}")
            share = draw.uniform(scenario.from_share, scenario.to_share)
            hit = _kill(words, share * whole[kind][0])
            killed[kind] += hit
            if not hit:
                # The machine is less busy than when the whole run was timed.
                whole[kind] = 0.7 * whole[kind][0], whole[kind][1]
            check_readable(inputs / f"run-{number}")
            if hit:
                _finish(words)
            check_readable(inputs / f"run-{number}")
            assert scenario.numbers(inputs / f"run-{number}") == whole[kind][1], (kind, number)
            assert not hidden_in(inputs / f"run-{number}"), (kind, number)
    return {"kills": killed.total(), "by_command": dict(killed), "seed": seed, "differences": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    started = time.monotonic()
    found = kill(chosen.kills, chosen.seed) | {"seconds": time.monotonic() - started}
    keep(chosen.output, "killed at random moments, then resumed to the same numbers", found)


if __name__ == "__main__":
    main()
