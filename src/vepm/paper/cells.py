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
    """A finished cell as it was read."""

    body: dict[str, Any]
    arrays_path: Path
    result: RunResult | None
    """The run behind the cell, if it was one."""

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
        return load(self.arrays_path.read_bytes())


def write_cell(folder: Path, cell: Cell, found: Finding, seconds: float) -> None:
    """Write a finished cell; its JSON comes last, when the arrays it refers to are there."""
    path = folder / cell.path
    arrays = save(found.arrays) if found.arrays else b""
    if arrays:
        write_bytes(path.with_suffix(".safetensors"), arrays)
    body = _identity(cell) | {
        "commit": commit(),
        "machine": describe_machine(),
        "seconds": seconds,
        "numbers": found.numbers,
        "arrays": _digest(arrays) if arrays else None,
        "result": None if found.result is None else found.result.to_dict(),
    }
    _write(path, body)


def copy_cell(folder: Path, source: Path, cell: Cell) -> None:
    """Copy a finished cell of the same task to where another belongs."""
    path = folder / cell.path
    body = json.loads((folder / source).read_text())
    if body["arrays"]:
        write_bytes(
            path.with_suffix(".safetensors"),
            (folder / source).with_suffix(".safetensors").read_bytes(),
        )
    body.pop("checksum")
    _write(path, body | _identity(cell))


def read_cell(path: Path, fingerprint: str) -> Record | None:
    """A finished cell, or None where there is none, a damaged one, or one of another task."""
    if not path.is_file():
        return None
    try:
        body = parse_json(path.read_bytes())
        whole = body.pop("checksum") == _checksum(body)
        known = body["fingerprint"] == Task(**body["task"]).fingerprint == fingerprint
        arrays, result = path.with_suffix(".safetensors"), body["result"]
        run = None if result is None else RunResult.from_dict(result)
        # What tables are made of must be of the right type.
        numbers = is_of_type(body["numbers"], dict[str, float])
        if not (whole and known and numbers and is_of_type(body.get("commit"), str | None)):
            return None
        if body["arrays"] and _digest(arrays.read_bytes()) != body["arrays"]:
            return None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return Record(body, arrays, run)


def _identity(cell: Cell) -> dict[str, Any]:
    return {
        "experiment": cell.experiment,
        "row": cell.row,
        "column": cell.column,
        "preset": cell.preset,
        "quick": cell.task.quick,
        "fingerprint": cell.task.fingerprint,
        "task": asdict(cell.task),
    }


def _write(path: Path, body: dict[str, Any]) -> None:
    write_text(path, json.dumps(body | {"checksum": _checksum(body)}) + "\n")


def _checksum(body: dict[str, Any]) -> str:
    return _digest(json.dumps(body, sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()
