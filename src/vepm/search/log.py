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
from statistics import fmean, stdev
from typing import Any

from vepm.errors import InputError
from vepm.files import parse_json, refuse_special
from vepm.runs.metrics import commit, describe_machine
from vepm.schema import is_of_type

Row = dict[str, Any]
"""One run: its setting's number and changes, where it ran, and how validation went."""
FIELDS: dict[str, Any] = {
    "number": int,
    "changes": dict,
    "dataset": str,
    "split": int,
    "seed": int,
    "val_accuracy": float,
    "val_loss": float | None,
    "best_epoch": int,
    "seconds": float,
}
EARLIER = {"epoch": "own", "keep": [1.0], "sampler": "random", "folds": 0}
"""What searches meant before these could be chosen."""


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
def open_log(path: Path, about: Mapping[str, Any], rule: str) -> Iterator[Log]:
    """The log in a file, made if there is none; an incomplete last line is dropped.

    Raises:
        InputError: if another process writes to the file, it holds another search, or is none.
    """
    refuse_special(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a file; choose another with --output")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{path}: another process is writing to it; wait for it") from None
        file.seek(0)
        content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        rows = _read(path, whole, json.loads(json.dumps(about))) if whole else []
        file.truncate(len(whole))
        if not whole:
            head = {"sweep": about, "rule": rule, "commit": commit()}
            Log(file, []).add([head | {"machine": describe_machine()}])
        yield Log(file, rows)


def _read(path: Path, content: bytes, about: Row) -> list[Row]:
    """The runs of a log; refused if it is none, holds another search, or a run twice."""
    lines: list[Row] = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            row = parse_json(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or (number > 1 and not _is_run(row)):
            raise InputError(f"{path}, line {number}: not a run of a search")
        lines.append(row)
    head, *rows = lines
    found = head.get("sweep")
    if not isinstance(found, dict):
        raise InputError(f"{path}: not the log of a search; choose another with --output")
    other = [name for name in about if found.get(name, EARLIER.get(name)) != about[name]]
    other += [name for name in found if name not in about]
    if other:
        raise InputError(
            f"{path}: holds a search with other {', '.join(other)}; choose another with --output, "
            "or remove it to start again"
        )
    if len({key_of(row) for row in rows}) < len(rows):
        raise InputError(f"{path}: holds a run twice; remove it to start again")
    return rows


def _is_run(row: Row) -> bool:
    values = [row.get(name, ()) for name in FIELDS]
    typed = all(is_of_type(v, kind) for v, kind in zip(values, FIELDS.values(), strict=True))
    return typed and all(math.isfinite(v) for v in values if isinstance(v, float))


def key_of(row: Row) -> tuple[int, str, int, int, float]:
    """What tells a run from the others of a search."""
    return row["number"], row["dataset"], row["split"], row["seed"], row.get("keep", 1.0)


@dataclass(frozen=True)
class Trial:
    """A setting and how it did over all of its runs."""

    number: int
    """0 is the setting to improve on."""
    changes: dict[str, Any]
    val_accuracy: float
    """Mean over its runs."""
    val_loss: float
    spread: float
    """Standard error of the mean over seeds and splits, within datasets."""
    by_dataset: dict[str, float]
    rows: tuple[Row, ...]
    refused: str = ""
    """Why it could not be trained."""


def trials_of(rows: Sequence[Row]) -> list[Trial]:
    """The settings of a search in the order of their numbers."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["number"], []).append(row)
    return [_trial(groups[number]) for number in sorted(groups)]


def standings(rows: Sequence[Row]) -> list[Trial]:
    """Settings from best to worst, of those that ran wherever any did.

    Example:
        >>> run = {"dataset": "Cora", "split": 0, "seed": 0, "changes": {}, "seconds": 1.0}
        >>> rows = [run | {"number": n, "val_accuracy": 0.8, "val_loss": 0.7 - n} for n in (0, 1)]
        >>> [trial.number for trial in standings(rows)]
        [1, 0]
    """
    found = trials_of(rows)
    most = max((len(trial.rows) for trial in found), default=0)
    whole = [trial for trial in found if len(trial.rows) == most]
    return sorted(whole, key=lambda t: (bool(t.refused), -t.val_accuracy, t.val_loss))


def _trial(group: list[Row]) -> Trial:
    scores: dict[str, list[float]] = {}
    for row in group:
        scores.setdefault(row["dataset"], []).append(row["val_accuracy"])
    errors = [stdev(s) / math.sqrt(len(s)) if len(s) > 1 else math.nan for s in scores.values()]
    # Searches of earlier versions called it by other names.
    notes = (row.get(name) for row in group for name in ("refused", "diverged", "pruned"))
    return Trial(
        number=group[0]["number"],
        changes=group[0]["changes"],
        val_accuracy=fmean(row["val_accuracy"] for row in group),
        val_loss=fmean(row["val_loss"] or 0.0 for row in group),
        spread=math.hypot(*errors) / len(errors),
        by_dataset={name: fmean(values) for name, values in scores.items()},
        rows=tuple(group),
        refused=str(next(filter(None, notes), "")),
    )
