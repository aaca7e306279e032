"""Cells on disk: complete or absent, and never mistaken for another's."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from vepm.evaluation import RunResult
from vepm.files import parse_json, write_bytes, write_text
from vepm.paper.findings import Finding
from vepm.paper.plan import Cell, Task
from vepm.runs.metrics import commit, describe_machine
from vepm.schema import is_of_type


@dataclass(frozen=True, eq=False)
class Record:
    """A finished cell as it was read, with the run behind it, if it was one."""

    body: dict[str, Any]
    path: Path
    result: RunResult | None

    @property
    def commit(self) -> str | None:
        """Commit of the code that ran; None where that is not known."""
        return self.body.get("commit")

    @property
    def numbers(self) -> dict[str, float]:
        """Numbers by metric."""
        measures = {} if self.result is None else self.result.measures
        single = {name: v for name, v in measures.items() if isinstance(v, float)}
        return {**single, **self.body["numbers"]}

    def arrays(self) -> dict[str, Tensor]:
        """What figures are drawn from."""
        return load(_arrays_path(self.path).read_bytes())


def write_cell(folder: Path, cell: Cell, found: Finding, seconds: float) -> None:
    """Write a finished cell."""
    arrays = save(found.arrays) if found.arrays else b""
    body = {
        "commit": commit(),
        "machine": describe_machine(),
        "seconds": seconds,
        "numbers": found.numbers,
        "arrays": _digest(arrays) if arrays else None,
        "result": None if found.result is None else found.result.to_dict(),
    }
    _write(folder / cell.path, cell, body, arrays)


def copy_cell(source: Record, folder: Path, cell: Cell) -> None:
    """Copy a finished cell of the same task to where another belongs."""
    arrays = _arrays_path(source.path).read_bytes() if source.body["arrays"] else b""
    _write(folder / cell.path, cell, source.body, arrays)


def _write(path: Path, cell: Cell, body: dict[str, Any], arrays: bytes) -> None:
    """Write arrays and JSON, in this order: whoever finds the JSON finds the arrays too."""
    identity = {
        "experiment": cell.experiment,
        "row": cell.row,
        "column": cell.column,
        "preset": cell.preset,
        "quick": cell.task.quick,
        "fingerprint": cell.task.fingerprint,
        "task": asdict(cell.task),
    }
    if arrays:
        write_bytes(_arrays_path(path), arrays)
    # First in the file, and never those of a cell that was copied.
    body = identity | body | identity
    write_text(path, json.dumps(body | {"checksum": _checksum(body)}) + "\n")


def read_cell(path: Path, fingerprint: str) -> Record | None:
    """A finished cell, or None where there is none, a damaged one, or one of another task."""
    if not path.is_file():
        return None
    try:
        body = parse_json(path.read_bytes())
        whole = body.pop("checksum") == _checksum(body)
        known = body["fingerprint"] == Task(**body["task"]).fingerprint == fingerprint
        result = None if body["result"] is None else RunResult.from_dict(body["result"])
        # What tables are made of must be of the right type.
        numbers = is_of_type(body["numbers"], dict[str, float])
        if not (whole and known and numbers and is_of_type(body.get("commit"), str | None)):
            return None
        if body["arrays"] and _digest(_arrays_path(path).read_bytes()) != body["arrays"]:
            return None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return Record(body, path, result)


def _arrays_path(path: Path) -> Path:
    return path.with_suffix(".safetensors")


def _checksum(body: dict[str, Any]) -> str:
    return _digest(json.dumps(body, sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()
