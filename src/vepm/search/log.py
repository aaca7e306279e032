"""The log of a search: what is searched, then a line of JSON per run, and how settings rank."""

import contextlib
import errno
import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from statistics import fmean
from typing import Any

from vepm.errors import InputError
from vepm.files import parse_json, refuse_special
from vepm.runs import commit, describe_machine
from vepm.schema import is_of_type

Row = dict[str, Any]
"""One run: its setting's number and changes, where it ran, and how validation went."""
FIELDS: dict[str, Any] = {
    **dict.fromkeys(("number", "split", "seed", "best_epoch"), int),
    **dict.fromkeys(("val_accuracy", "seconds"), float),
    "val_loss": float | None,
    "changes": dict,
    "dataset": str,
}


@dataclass(frozen=True)
class Log:
    """A log that this process alone may write; see :func:`open_log`."""

    file: FileIO
    rows: list[Row]

    def add(self, rows: Sequence[Row]) -> None:
        """Append runs; they are on the disk when this returns."""
        content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        try:
            if self.file.write(content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self.file.fileno())
        except OSError as error:
            # Errors of an open file do not say which one it was.
            error.filename = str(self.file.name)
            raise
        self.rows.extend(rows)


@contextlib.contextmanager
def open_log(
    path: Path, about: Mapping[str, Any], rule: str, absent: Mapping[str, Any] | None = None
) -> Iterator[Log]:
    """The log in a file, made if there is none; an incomplete last line is dropped.

    It must be of the same search, as ``about`` says; ``absent`` is what old logs leave out of it.
    """
    refuse_special(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{path}: another process is writing to it; wait for it") from None
        file.seek(0)
        content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        rows = _read(path, whole, json.loads(json.dumps(about)), absent or {}) if whole else []
        file.truncate(len(whole))
        if not whole:
            origin = {"commit": commit(), "machine": describe_machine()}
            Log(file, []).add([{"sweep": about, "rule": rule, **origin}])
        yield Log(file, rows)


def _read(path: Path, content: bytes, about: Row, absent: Mapping[str, Any]) -> list[Row]:
    """The runs of a log; refused if it is none, holds another search, or a run twice."""
    lines: list[Row] = []
    for number, line in enumerate(content.splitlines(), start=1):
        row = None
        with contextlib.suppress(ValueError):
            row = parse_json(line)
        if not isinstance(row, dict) or (number > 1 and not _is_run(row)):
            raise InputError(f"{path}, line {number}: not a run of a search")
        lines.append(row)
    head, *rows = lines
    found = head.get("sweep")
    if not isinstance(found, dict):
        raise InputError(f"{path}: not the log of a search; choose another with --output")
    found = {name: value for name, value in absent.items() if name in about} | found
    if other := [name for name in about | found if found.get(name) != about.get(name)]:
        raise InputError(
            f"{path}: holds a search with other {', '.join(other)}; choose another with --output, "
            "or remove it to start again"
        )
    if len({key_of(row) for row in rows}) < len(rows):
        raise InputError(f"{path}: holds a run twice; remove it to start again")
    return rows


def _is_run(row: Row) -> bool:
    values = [row.get(name, ()) for name in FIELDS]
    typed = all(map(is_of_type, values, FIELDS.values()))
    return typed and all(math.isfinite(v) for v in values if isinstance(v, float))


def key_of(row: Row) -> tuple[int, str, int, int, float]:
    """What tells a run from the others of a search."""
    return row["number"], row["dataset"], row["split"], row["seed"], row.get("keep", 1.0)


@dataclass(frozen=True)
class Trial:
    """A setting and how it did: its runs, the means of their scores, and why it was refused."""

    number: int  # 0 is the setting to improve on
    changes: dict[str, Any]
    val_accuracy: float
    val_loss: float
    rows: tuple[Row, ...] = ()
    refused: str = ""


def trials_of(rows: Sequence[Row]) -> list[Trial]:
    """The settings of a search in the order of their numbers."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["number"], []).append(row)
    found = []
    for number, group in sorted(groups.items()):
        means = fmean(r["val_accuracy"] for r in group), fmean(r["val_loss"] or 0.0 for r in group)
        refused = next((str(row["refused"]) for row in group if row.get("refused")), "")
        found.append(Trial(number, group[0]["changes"], *means, tuple(group), refused))
    return found


def standings(rows: Sequence[Row]) -> list[Trial]:
    """Settings from best to worst, of those that ran wherever any did."""
    found = trials_of(rows)
    most = max((len(trial.rows) for trial in found), default=0)
    whole = [trial for trial in found if len(trial.rows) == most]
    return sorted(whole, key=lambda t: (bool(t.refused), -t.val_accuracy, t.val_loss))
