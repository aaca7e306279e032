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
from vepm.evaluation import RunResult, Split, result_of
from vepm.files import parse_json, write_bytes, write_text
from vepm.paper.experiments import slug
from vepm.runs.metrics import commit, describe_machine
from vepm.schema import is_of_type
from vepm.training import Config, Fitted, fit


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
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

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

    @property
    def parts(self) -> int:
        """Number of communities to find."""
        return self.config.model.num_metacommunities


@dataclass(frozen=True, eq=False)
class Finding:
    """What a run or a study finds."""

    numbers: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, Tensor] = field(default_factory=dict)
    result: RunResult | None = None


def finetune(setting: Setting) -> tuple[Fitted, RunResult]:
    """Train VEPM on the split; gives the model and the result."""
    started = time.perf_counter()
    dataset, split = setting.dataset, setting.split
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
    arrays = _arrays_path(source.path)
    content = arrays.read_bytes() if source.body["arrays"] and arrays.exists() else b""
    _write(folder / cell.path, cell, source.body, content)


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
    """A finished cell, or None where there is none, a damaged one, or one of another task.

    Its arrays may be missing: they are too large to be kept with every result.
    """
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
        if not (whole and known and numbers and named):
            return None
        arrays = _arrays_path(path)
        if body["arrays"] and arrays.exists() and _digest(arrays.read_bytes()) != body["arrays"]:
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
