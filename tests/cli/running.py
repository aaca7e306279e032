"""The command line as a user meets it, in this process or in one of its own."""

import contextlib
import csv
import io
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from safetensors.torch import load_file

from vepm.cli import main
from vepm.cli.folders import MARKER

QUICK = ("--set", "epochs=5", "--set", "pretrain_epochs=5", "--device", "cpu")

SLOW = """
import signal, sys, time
# Whoever runs the tests in the background has interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from vepm.training import fitting
save = fitting.save_state
def save_and_wait(*args):
    save(*args)
    time.sleep(0.05)
fitting.save_state = save_and_wait
fitting.SECONDS_BETWEEN_SAVES = 0.0
from vepm.cli import main
main()
"""
"""The command line with a checkpoint after every epoch, and time to stop it in between."""


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def vepm(*words: str | Path) -> Outcome:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["vepm", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        _own_logging(),
    ):
        try:
            main()
            code: Any = 0
        except SystemExit as stop:
            code = stop.code or 0
    return Outcome(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _own_logging() -> Iterator[None]:
    logger = logging.getLogger("vepm")
    handlers, level = list(logger.handlers), logger.level
    try:
        yield
    finally:
        logger.handlers[:] = handlers
        logger.setLevel(level)


def start_slowly(*words: str | Path) -> subprocess.Popen[str]:
    """Run a command in a process of its own, without waiting for its end."""
    command = [sys.executable, "-c", SLOW, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 120) -> None:
    """Until a process has made a file."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def succeed(*words: str | Path) -> Outcome:
    outcome = vepm(*words)
    assert outcome.code == 0, outcome.err
    return outcome


def refused(*words: str | Path) -> str:
    """The one line by which a command is refused; it says nothing else and exits with 2."""
    outcome = vepm(*words)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    return outcome.err


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def same_tensors(one: Path, other: Path) -> bool:
    """Whether two files hold the same tensors, in whatever order."""
    a, b = load_file(one), load_file(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def names_in(folder: Path) -> set[str]:
    """What is in a folder beside the mark that it is ours."""
    return {path.name for path in folder.iterdir()} - {MARKER}


def hidden_in(folder: Path) -> list[Path]:
    """Unfinished files."""
    return [path for path in folder.rglob(".*") if path.name != MARKER]
