"""The log of a search: what is searched, then a line of JSON per run, and how settings rank."""

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from vepm.errors import InputError
from vepm.files import parse_json, refuse_special, write_text
from vepm.runs import commit, describe_machine
from vepm.schema import is_of_type
from vepm.search.tuning import Trial

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
    """What a search has found so far, in a file that is whole at any time; see :func:`open_log`."""

    path: Path
    head: Row
    rows: list[Row]

    def add(self, rows: Sequence[Row]) -> None:
        """Append runs; they are on the disk when this returns."""
        written = [self.head, *self.rows, *rows]
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in written))
        self.rows.extend(rows)


def open_log(path: Path, about: Row, rule: str, absent: Mapping[str, Any] | None = None) -> Log:
    """The log in a file, made if there is none; an incomplete last line is dropped.

    It must be of the same search, as ``about`` says; ``absent`` is what old logs leave out of it.
    Two processes must not write to it at once.
    """
    refuse_special(path)
    content = path.read_bytes() if path.exists() else b""
    if whole := content[: content.rfind(b"\n") + 1]:
        return Log(path, *_read(path, whole, json.loads(json.dumps(about)), absent or {}))
    origin = {"commit": commit(), "machine": describe_machine()}
    log = Log(path, {"sweep": about, "rule": rule, **origin}, [])
    log.add([])
    return log


def _read(
    path: Path, content: bytes, about: Row, absent: Mapping[str, Any]
) -> tuple[Row, list[Row]]:
    """The first line and the runs of a log of this search, none of which may be there twice."""
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
    return head, rows


def _is_run(row: Row) -> bool:
    values = [row.get(name, ()) for name in FIELDS]
    typed = all(map(is_of_type, values, FIELDS.values()))
    return typed and all(math.isfinite(v) for v in values if isinstance(v, float))


def key_of(row: Row) -> tuple[int, str, int, int, float]:
    """What tells a run from the others of a search."""
    return row["number"], row["dataset"], row["split"], row["seed"], row.get("keep", 1.0)


@dataclass(frozen=True)
class Tried(Trial):
    """A setting of a sweep, with its number and its runs."""

    number: int = 0
    rows: tuple[Row, ...] = ()


def trials_of(rows: Sequence[Row]) -> list[Tried]:
    """The settings of a search in the order of their numbers."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["number"], []).append(row)
    found = []
    for number, group in sorted(groups.items()):
        means = fmean(r["val_accuracy"] for r in group), fmean(r["val_loss"] or 0.0 for r in group)
        refused = next((str(row["refused"]) for row in group if row.get("refused")), "")
        found.append(Tried(group[0]["changes"], *means, 0.0, refused, number, tuple(group)))
    return found


def standings(rows: Sequence[Row]) -> list[Tried]:
    """Settings from best to worst, of those that ran wherever any did."""
    found = trials_of(rows)
    most = max((len(trial.rows) for trial in found), default=0)
    whole = [trial for trial in found if len(trial.rows) == most]
    return sorted(whole, key=lambda t: (bool(t.refused), -t.val_accuracy, t.val_loss))
