"""Output of the commands: messages, errors, progress bars, lines, JSON."""

import contextlib
import errno
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vepm.escaping import for_json, for_terminal, on_one_line

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, quota or file has no more room
# Names come from users' data: square brackets are no markup.
out = Console(markup=False)
err = Console(stderr=True, markup=False)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return on_one_line(super().format(record))


def show_messages() -> None:
    """Send the package's log messages to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine())
    logger = logging.getLogger("vepm")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)


def print_error(error: Exception) -> None:
    """What went wrong, on one line."""
    text = str(error)
    if isinstance(error, MemoryError):
        text = "; ".join(filter(None, ("not enough memory", text)))
    if isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in FULL:
        text += "; files written before are complete: make room and give the command again"
    _print(err, f"error: {on_one_line(text)}", "red")


def print_result(
    metrics: Mapping[str, Any], folder: Path, as_json: bool, show: Callable[..., None]
) -> None:
    """What looked wrong with a training, on standard error, and its result."""
    for line in metrics["warnings"]:
        _print(err, f"warning: {on_one_line(line)}", "yellow")
    if as_json:
        print_json(metrics)
    else:
        show(metrics, folder)


def print_note(text: str) -> None:
    """A line for people in addition to the results, on standard error."""
    _print(err, for_terminal(text))


def print_line(text: str) -> None:
    """A result in words."""
    _print(out, for_terminal(text))


def _print(where: Console, text: str, style: str | None = None) -> None:
    where.print(text, style=style, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One line of JSON, whatever the width of the terminal."""
    print(json.dumps(for_json(value)))


def cost(metrics: Mapping[str, Any]) -> str:
    """Time and memory that a training took."""
    took = f"{metrics['seconds']:.1f} s in {metrics['epochs']} epochs"
    return f"{took}, at most {metrics['peak_memory_mib']:,.0f} MiB of memory"


@contextlib.contextmanager
def bars() -> Iterator[Callable[[str, int, int, str], None]]:
    """Progress bars on a terminal; called with a name, what is done, the total, and a note."""
    if not err.file.isatty() or os.environ.get("RANK", "0") != "0":
        yield lambda *_: None
        return
    described = TextColumn("{task.description:<9}", markup=False)
    noted = TextColumn("{task.fields[note]}", markup=False)
    columns = (described, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), noted)
    with Progress(*columns, console=err) as shown:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int, note: str) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(on_one_line(what), note="")
            shown.update(tasks[what], completed=done, total=total, note=on_one_line(note))

        yield show


@contextlib.contextmanager
def run_bar(what: str) -> Iterator[Callable[[int, int, object], None]]:
    """A progress bar over runs; called with the number done, the total, and the last run."""
    with bars() as show:
        yield lambda done, total, last: show(what, done, total, last if type(last) is str else "")
