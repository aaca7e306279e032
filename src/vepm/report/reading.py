"""Run folders, read and checked."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from vepm.errors import InputError
from vepm.files import parse_json, read_toml
from vepm.report.run import Array, Run
from vepm.schema import is_of_type
from vepm.tasks import TASKS

BENCHMARKS = Path(__file__).parent / "assets" / "benchmarks.toml"
SOURCES = ("Planetoid", "TU collection")  # of benchmarks whose files have numbers for classes
MOST_CLASSES = 2**20
METRICS: dict[str, Any] = {
    **dict.fromkeys(("dataset", "task"), str),
    **dict.fromkeys(("seed", "best_epoch"), int),
    "num_classes": int | None,
    **dict.fromkeys(("val_accuracy", "test_accuracy"), float | None),
    **dict.fromkeys(("class_names", "warnings"), list[str]),
    "versions": dict[str, Any],
    "baselines": dict[str, dict[str, Any]],
    "parts": list[dict[str, float | dict[str, float] | None]],
    "partitions": dict[str, float],
    "excerpt_of": dict[str, int],
}
"""Types of the entries of ``metrics.json`` that a page is made from."""
BOUNDS = {"num_classes": MOST_CLASSES, "val_accuracy": 1, "test_accuracy": 1}
SPLITS = ("train", "val", "test")
# Beyond single precision, sums and products would overflow.
LARGEST = float(np.finfo(np.float32).max)
# A share may exceed one by a rounding error.
SHARE = (0, 1.001)
NUMBER = (-LARGEST, LARGEST)
CLASS = (-1, MOST_CLASSES)
Bounds = tuple[float, float]
ARRAYS: dict[str, tuple[str, str, Bounds]] = {
    "memberships": ("f", "nodes communities", (0, LARGEST)),
    "activation": ("f", "communities", (0, LARGEST)),
    "edge_index": ("iu", "ends edges", (0, LARGEST)),
    "edge_weight": ("f", "edges metacommunities", SHARE),
    "assignment": ("f", "communities metacommunities", SHARE),
    "batch": ("iu", "nodes", (0, LARGEST)),
    "features": ("f", "nodes features", NUMBER),
    "community_embeddings": ("f", "nodes metacommunities columns", NUMBER),
    "y": ("iu", "items", CLASS),
    "prediction": ("iu", "items", CLASS),
    "probabilities": ("f", "items classes", SHARE),
    "log_odds": ("f", "items", NUMBER),
    "log_odds_without": ("f", "items metacommunities", NUMBER),
    "label_without": ("iu", "items metacommunities", CLASS),
    **{f"{split}_mask": ("biu", "items", (0, 1)) for split in SPLITS},
}
"""Kinds of NumPy types, dimensions and range of each array of ``outputs.safetensors``; items are
nodes in a node task, graphs in a graph task."""
REQUIRED = ("memberships", "activation", "edge_index", "edge_weight")


def read_run(folder: str | Path) -> Run:
    """Read what ``vepm train`` or ``vepm communities`` wrote.

    An InputError says which file is missing, damaged, or at odds with the others.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such run folder; `vepm train` writes one")
    metrics = read_metrics(folder / "metrics.json")
    arrays, sizes = _read_arrays(folder / "outputs.safetensors", metrics["task"])
    names = read_json(folder / "names.json", required=False)
    given = [arrays[name] for name in ("y", "prediction") if name in arrays]
    largest = [int(found.max(initial=-1)) + 1 for found in given]
    classes = max(metrics.get("num_classes") or 0, sizes.get("classes", 0), *largest)
    if "probabilities" in arrays and classes != sizes["classes"]:
        many = f"{classes} classes and the probabilities {sizes['classes']}"
        raise InputError(f"{folder}: metrics.json or the labels have {many}; train again")
    masks = {split: arrays.pop(f"{split}_mask", None) for split in SPLITS}
    features = names.get("feature_names") if "features" in arrays else None
    return Run(
        folder=folder,
        settings=read_toml(folder / "config.toml"),
        metrics=metrics,
        history=_read(folder / "history.csv", _load_history, "a table of numbers"),
        masks={split: mask == 1 for split, mask in masks.items() if mask is not None},
        labels=arrays.pop("y", None),
        class_names=_class_names(metrics, classes),
        node_names=_names(names.get("node_names"), sizes["nodes"], "node"),
        graph_names=_names(names.get("graph_names"), sizes["items"], "graph")[: sizes["items"]],
        feature_names=_names(features, sizes.get("features", 0), "feature"),
        **arrays,
    )


def _read(path: Path, load: Any, kind: str) -> Any:
    """The content of a file; an InputError says that it is missing or not of its kind."""
    if not path.exists():
        raise InputError(f"{path}: missing; is this a run folder of `vepm train`?")
    if not path.is_file():
        # Reading a pipe or a device might never end.
        raise InputError(f"{path}: not a file")
    try:
        return load(path)
    except (SafetensorError, csv.Error, OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path}: not {kind} ({' '.join(str(error).split())})") from None


def read_json(path: Path, *, required: bool = True) -> dict[str, Any]:
    """A JSON object; an empty one where an optional file is absent."""
    if not required and not path.exists():
        return {}
    content = _read(path, lambda path: parse_json(path.read_text(encoding="utf-8")), "JSON")
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object")
    return content


def read_metrics(path: Path) -> dict[str, Any]:
    """The contents of ``metrics.json``; an InputError names the entry that cannot be right."""
    found = read_json(path)
    for name, kind in METRICS.items():
        if name in ("dataset", "task") and name not in found:
            raise InputError(f"{path}: no {name!r}; train again to rewrite it")
        value = found.get(name)
        wrong = name in found and not is_of_type(value, kind)
        if wrong or (name in BOUNDS and not 0 <= (value or 0) <= BOUNDS[name]):
            raise InputError(f"{path}: {name} is {value!r}; train again to rewrite it")
    if found["task"] not in TASKS:
        raise InputError(f"{path}: task is {found['task']!r}, none of {', '.join(TASKS)}")
    return found


def _read_arrays(path: Path, task: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The arrays that a page is made from, and the sizes of their dimensions."""
    given = _read(path, load_file, "a whole safetensors file")
    single, sizes, arrays = TASKS[task].single_graph, {"ends": 2}, {}
    for name, (kinds, shape, bounds) in ARRAYS.items():
        if name in given:
            dimensions = (shape.replace("items", "nodes") if single else shape).split()
            if problem := _problem(given[name], kinds, dimensions, bounds, sizes):
                raise InputError(f"{path}: {name} {problem}; train again to rewrite it")
            arrays[name] = given[name].astype(np.float64 if kinds == "f" else np.int64)
        elif name in REQUIRED or (name == "batch" and not single):
            raise InputError(f"{path}: no array {name!r}; train again to rewrite it")
    if single:
        arrays.pop("batch", None)
    sizes.setdefault("items", sizes["nodes"] if single else int(arrays["batch"].max(initial=0)) + 1)
    for name, within in (("edge_index", "nodes"), ("batch", "items")):
        if name in arrays and arrays[name].max(initial=-1) >= sizes[within]:
            raise InputError(f"{path}: {name} holds numbers outside 0 to {sizes[within] - 1}")
    if not sizes["nodes"] or not 1 <= sizes["metacommunities"] <= sizes["communities"]:
        raise InputError(f"{path}: {sizes} cannot be right; train again to rewrite it")
    return arrays, sizes


def _problem(
    array: Array, kinds: str, dimensions: list[str], bounds: Bounds, sizes: dict[str, int]
) -> str:
    """What is wrong with an array: its type, its shape given those before it, or its values."""
    if array.ndim != len(dimensions):
        return f"has {array.ndim} dimensions, not {len(dimensions)}"
    if array.dtype.kind not in kinds:
        return f"holds {array.dtype}"
    for dimension, size in zip(dimensions, array.shape, strict=True):
        if sizes.setdefault(dimension, size) != size:
            return f"is {array.shape}, with {size} instead of {sizes[dimension]} {dimension}"
    # Bounds overflow half precision; some patterns of bits that are no numbers would warn.
    with np.errstate(invalid="ignore"):
        values = array.astype(np.float64)
    if not ((bounds[0] <= values) & (values <= bounds[1])).all():
        return f"holds values that are not between {bounds[0]:g} and {bounds[1]:g}"
    return ""


def _load_history(path: Path) -> dict[str, Array]:
    """Columns of the training history: ``phase`` as text, the rest as numbers."""
    header, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    for name in ("phase", "epoch"):
        if name not in header:
            raise ValueError(f"no column {name!r}")
    columns = {name: [row[place] for row in rows] for place, name in enumerate(header)}
    return {
        name: np.array(cells if name == "phase" else [float(cell or "nan") for cell in cells])
        for name, cells in columns.items()
    }


def _names(given: Any, count: int, kind: str) -> tuple[str, ...]:
    """The given names, printable, or numbered ones where they are absent or too few."""
    if not isinstance(given, list) or len(given) < count:
        return tuple(f"{kind} {number}" for number in range(count))
    return tuple("".join(c if c.isprintable() else " " for c in str(n)) for n in given)


def _class_names(metrics: dict[str, Any], count: int) -> tuple[str, ...]:
    names = _names(metrics.get("class_names"), count, "class")
    named = str(metrics.get("source")).startswith(SOURCES)
    known = read_toml(BENCHMARKS).get(metrics["dataset"], ()) if named else ()
    return tuple(known) if len(known) == len(names) and all(map(str.isdigit, names)) else names
