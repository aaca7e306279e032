"""Cells: one run each, what a study is given and finds, and results on disk, complete or absent."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor
from torch_geometric.data import Data

from vepm.data import Dataset
from vepm.evaluation import RunResult, Split
from vepm.evaluation.executor import result_of
from vepm.files import parse_json, write_bytes, write_text
from vepm.paper.experiments import slug
from vepm.runs import commit, describe_machine
from vepm.schema import is_of_type
from vepm.training import Config, Fitted, fit

ARRAYS = ".safetensors"


@dataclass(frozen=True)
class Task:
    """Everything that decides the outcome of a run; squares that need the same run share it."""

    method: str
    dataset: str
    protocol: str
    split: int
    seed: int
    keep: float
    quick: bool
    settings: Mapping[str, Any] = field(hash=False)

    @cached_property
    def fingerprint(self) -> str:
        """A short name that no other task has."""
        return _checksum(asdict(self))

    @property
    def config(self) -> Config:
        """The settings of VEPM."""
        return Config.from_dict(dict(self.settings))


@dataclass(frozen=True)
class Cell:
    """One run of one square; the preset is VEPM's, None of other methods."""

    experiment: str
    row: str
    column: str
    task: Task
    preset: str | None = None

    @property
    def path(self) -> Path:
        """Where the result lies, relative to all results."""
        run = f"{self.task.protocol}-{self.task.split}-seed-{self.task.seed}.json"
        return Path(self.experiment) / "cells" / slug(self.row) / slug(self.column) / run


@dataclass(frozen=True, eq=False)
class Setting:
    """What a study is given."""

    dataset: Dataset
    split: Split
    config: Config
    seed: int
    device: str = "auto"
    quick: bool = False

    @property
    def graph(self) -> Data:
        """The one graph of a node task."""
        return self.dataset.graphs[0]


@dataclass(frozen=True, eq=False)
class Finding:
    """What a run or a study finds."""

    numbers: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, Tensor] = field(default_factory=dict)
    result: RunResult | None = None


def finetune(setting: Setting) -> tuple[Fitted, RunResult]:
    """Train VEPM on the split; returns the model and the result."""
    started, dataset, split = time.perf_counter(), setting.dataset, setting.split
    fitted = fit(
        dataset,
        setting.config,
        train_on=split.train,
        validate_on=split.val,
        watch=split.test,
        seed=setting.seed,
        device=setting.device,
    )
    return fitted, result_of(fitted, dataset, split, time.perf_counter() - started)


@dataclass(frozen=True, eq=False)
class Record:
    """A finished cell as it was read, with the run behind it, if it was one."""

    body: dict[str, Any]
    path: Path
    result: RunResult | None

    @property
    def numbers(self) -> dict[str, float]:
        """Numbers by metric."""
        measures = {} if self.result is None else self.result.measures
        return {n: v for n, v in measures.items() if isinstance(v, float)} | self.body["numbers"]

    def arrays(self) -> dict[str, Tensor]:
        """What figures are drawn from."""
        return load(self.path.with_suffix(ARRAYS).read_bytes())


def write_cell(folder: Path, cell: Cell, found: Finding, seconds: float) -> None:
    """Write a finished cell."""
    arrays = save(found.arrays) if found.arrays else b""
    body = {
        "commit": commit(),
        "machine": describe_machine(),
        "seconds": seconds,
        "numbers": found.numbers,
        "arrays": _digest(arrays) if arrays else None,
        "result": None if found.result is None else asdict(found.result),
    }
    _write(folder / cell.path, cell, body, arrays)


def copy_cell(source: Record, folder: Path, cell: Cell) -> None:
    """Copy a finished cell of the same task to where another belongs."""
    arrays = source.path.with_suffix(ARRAYS)
    content = arrays.read_bytes() if source.body["arrays"] and arrays.exists() else b""
    _write(folder / cell.path, cell, source.body, content)


def _write(path: Path, cell: Cell, body: dict[str, Any], arrays: bytes) -> None:
    # In this order, so that a reader who finds the JSON finds the arrays too.
    if arrays:
        write_bytes(path.with_suffix(ARRAYS), arrays)
    identity = asdict(cell) | {"fingerprint": cell.task.fingerprint}
    # First in the file, and never those of a cell that was copied.
    body = identity | body | identity
    write_text(path, json.dumps(body | {"checksum": _checksum(body)}) + "\n")


def read_cell(path: Path, fingerprint: str) -> Record | None:
    """A finished cell, with or without its large arrays; None if damaged or of another task."""
    if not path.is_file():
        return None
    try:
        body = parse_json(path.read_bytes())
        whole = body.pop("checksum") == _checksum(body)
        known = body["fingerprint"] == Task(**body["task"]).fingerprint == fingerprint
        result = None if body["result"] is None else RunResult.from_dict(body["result"])
        # What tables are made of must be of the right type.
        numbers = is_of_type(body["numbers"], dict[str, float])
        named = all(is_of_type(body.get(name), str | None) for name in ("commit", "arrays"))
        arrays = path.with_suffix(ARRAYS)
        if body["arrays"] and arrays.exists():
            whole &= _digest(arrays.read_bytes()) == body["arrays"]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return Record(body, path, result) if whole and known and numbers and named else None


def _checksum(body: dict[str, Any]) -> str:
    return _digest(json.dumps(body, sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()
