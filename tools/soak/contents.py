"""What commands wrote: whether it can be read, and whether two folders hold the same."""

import csv
import json
import sqlite3
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open

from cli.running import read_json, read_rows
from vepm.files import HALF

VARYING = {"seconds", "peak_memory_mib", "command", "machine", "commit", "checksum", "abandoned"}
"""What differs from run to run."""


def contents(folder: Path) -> dict[str, Any]:
    """The content of every file of a folder, the marker included, without times."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != HALF]
    return {str(p.relative_to(folder)): _SAYING.get(p.suffix, Path.read_bytes)(p) for p in files}


def timeless(value: Any) -> Any:
    """JSON without what differs from run to run."""
    if isinstance(value, dict):
        return {key: timeless(v) for key, v in value.items() if key not in VARYING}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def _lines(path: Path) -> Any:
    return timeless([json.loads(line) for line in path.read_text().splitlines()])


_SAYING: dict[str, Callable[[Path], Any]] = {
    ".json": lambda path: timeless(read_json(path)),
    ".jsonl": _lines,
    ".csv": lambda path: timeless(read_rows(path)),
    # Pages and databases tell the time in many places: that they are there must do.
    **dict.fromkeys((".html", ".db"), lambda path: None),
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
