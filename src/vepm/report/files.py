"""The files of a run folder, each read or refused in one line."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from vepm.errors import InputError

Array = NDArray[Any]

HISTORY_COLUMNS = ("phase", "epoch")


def read_json(path: Path, *, required: bool) -> dict[str, Any]:
    """A JSON object; an empty one where an optional file is absent."""
    if not required and not path.exists():
        return {}
    text = _read_text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object")
    return content


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: missing; is this a run folder of `vepm train`?") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def read_outputs(path: Path) -> dict[str, Array]:
    """The arrays of a safetensors file."""
    if not path.exists():
        raise InputError(f"{path}: missing; is this a run folder of `vepm train`?")
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not a whole safetensors file ({reason})") from None


def read_history(path: Path) -> dict[str, Array]:
    """Columns of the training history: ``phase`` as text, the rest as numbers."""
    reader = csv.DictReader(_read_text(path).splitlines())
    try:
        rows = list(reader)
        columns = list(reader.fieldnames or [])
    except csv.Error as error:
        raise InputError(f"{path}: not CSV ({error})") from None
    for column in HISTORY_COLUMNS:
        if column not in columns:
            raise InputError(f"{path}: no column {column!r}")
    history: dict[str, Array] = {"phase": np.array([row["phase"] for row in rows], dtype=str)}
    for column in columns:
        if column != "phase":
            history[column] = np.array(
                [_number(path, i, column, row[column]) for i, row in enumerate(rows, 2)],
                dtype=np.float64,
            )
    return history


def _number(path: Path, row: int, column: str, cell: str | None) -> float:
    try:
        return float(cell) if cell else float("nan")
    except ValueError:
        raise InputError(f"{path}, row {row}: {column} is {cell!r}, not a number") from None
