"""The files of a run folder: what each holds, as it is written and as it is read."""

import csv
from pathlib import Path
from typing import Any, NotRequired, TypedDict, get_type_hints

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from vepm.errors import InputError
from vepm.files import parse_json
from vepm.schema import is_of_type
from vepm.tasks import TASKS

Array = NDArray[Any]

CONFIG = "config.toml"
METRICS = "metrics.json"
HISTORY = "history.csv"
OUTPUTS = "outputs.safetensors"
NAMES = "names.json"
MODEL = "model.safetensors"
PREDICTIONS = "predictions.safetensors"
FILES = (METRICS, CONFIG, HISTORY, OUTPUTS, NAMES)
"""What a page is made from."""
MOST_CLASSES = 2**20
SIZES = {"nodes", "edges"}
"""What ``excerpt_of`` says."""


class Metrics(TypedDict):
    """The contents of ``metrics.json``.

    Those that are not required are absent where they mean nothing, or in files of earlier versions.
    """

    dataset: str
    task: str
    source: NotRequired[str]
    """Where the data came from."""
    seed: NotRequired[int]
    num_classes: NotRequired[int | None]
    class_names: NotRequired[list[str]]
    val_accuracy: NotRequired[float | None]
    test_accuracy: NotRequired[float | None]
    val_macro_f1: NotRequired[float]
    """Macro F1, area under the ROC curve and scores of each class, of validation and test labels;
    see :meth:`vepm.tasks.Task.measures`."""
    val_roc_auc: NotRequired[float | None]
    val_per_class: NotRequired[list[Any]]
    test_macro_f1: NotRequired[float]
    test_roc_auc: NotRequired[float | None]
    test_per_class: NotRequired[list[Any]]
    rule: NotRequired[str]
    """How the epoch was chosen."""
    best_epoch: NotRequired[int]
    epochs: NotRequired[int]
    seconds: NotRequired[float]
    peak_memory_mib: NotRequired[float]
    peak_gpu_memory_mib: NotRequired[float]
    num_train: NotRequired[int]
    num_val: NotRequired[int]
    num_test: NotRequired[int]
    num_samples: NotRequired[int]
    """Draws that a prediction averages."""
    ece: NotRequired[float]
    """Expected calibration error on test labels."""
    nmi: NotRequired[float]
    """Normalised mutual information of communities and labels."""
    parts: NotRequired[list[Any]]
    """One :class:`vepm.runs.metrics.Part` for each metacommunity."""
    excerpt_of: NotRequired[dict[str, int]]
    """Nodes and edges of a large graph, of which the outputs are an excerpt."""
    device: NotRequired[str]
    versions: NotRequired[dict[str, Any]]
    """Packages and hardware, the number of threads among them."""
    warnings: NotRequired[list[str]]
    """Signs that the training failed."""
    baselines: NotRequired[dict[str, Any]]
    """Test accuracy and measures of each baseline."""
    command: NotRequired[str]
    feature_names: NotRequired[list[str]]
    """In files of earlier versions; now in ``names.json``."""


HISTORY_COLUMNS = (
    *("phase", "epoch", "loss", "task", "edges", "kl", "disagreement"),
    *("train_accuracy", "val_accuracy", "val_loss", "learning_rate", "seconds"),
)
"""Columns of ``history.csv``; readers need the first two."""


def read_metrics(path: Path) -> Metrics:
    """The contents of ``metrics.json``; an InputError names the entry that cannot be right."""
    found: Any = read_json(path, required=True)
    for name, kind in get_type_hints(Metrics).items():
        if name in Metrics.__required_keys__ and name not in found:
            raise InputError(f"{path}: no {name!r}; train again to rewrite it")
        if name in found and not is_of_type(found[name], kind):
            raise InputError(f"{path}: {name} is {found[name]!r}; train again to rewrite it")
    if found["task"] not in TASKS:
        raise InputError(f"{path}: task is {found['task']!r}, none of {', '.join(TASKS)}")
    if not 0 <= (found.get("num_classes") or 0) <= MOST_CLASSES:
        raise InputError(f"{path}: num_classes is {found['num_classes']!r}; train again")
    for name in ("val_accuracy", "test_accuracy"):
        if not 0 <= (found.get(name) or 0) <= 1:
            raise InputError(f"{path}: {name} is {found[name]!r}, no accuracy; train again")
    whole = found.get("excerpt_of", dict.fromkeys(SIZES, 0))
    if set(whole) != SIZES or not all(type(size) is int for size in whole.values()):
        raise InputError(f"{path}: excerpt_of is {whole!r}; train again")
    return found


def read_json(path: Path, *, required: bool) -> dict[str, Any]:
    """A JSON object; an empty one where an optional file is absent."""
    if not required and not path.exists():
        return {}
    text = _read_text(path)
    try:
        content = parse_json(text)
    except ValueError as error:
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
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        # NumPy does not have every type that the format has.
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
    for column in HISTORY_COLUMNS[:2]:
        if column not in columns:
            raise InputError(f"{path}: no column {column!r}")
    history: dict[str, Array] = {"phase": np.array([row["phase"] for row in rows], dtype=str)}
    for column in columns:
        if column != "phase":
            history[column] = np.full(len(rows), np.nan)
            for place, cell in enumerate(row[column] for row in rows):
                try:
                    history[column][place] = float(cell or "nan")
                except ValueError:
                    where = f"{path}, row {place + 2}"
                    raise InputError(f"{where}: {column} is {cell!r}, not a number") from None
    return history
