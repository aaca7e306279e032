"""Whether the arrays of a run fit together."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vepm.errors import InputError
from vepm.runs.schema import MOST_CLASSES
from vepm.tasks import TASKS

Arrays = Mapping[str, NDArray[Any]]
Shapes = dict[str, tuple[str, tuple[str | int, ...]]]

REQUIRED = ("edge_index", "edge_weight", "memberships", "activation")
ATTRIBUTION = ("log_odds", "log_odds_without", "label_without")
SPLITS = ("train", "val", "test")
OF_NODES: Shapes = {
    "memberships": ("f", ("nodes", "communities")),
    "activation": ("f", ("communities",)),
    "edge_index": ("iu", (2, "edges")),
    "edge_weight": ("f", ("edges", "metacommunities")),
    "assignment": ("f", ("communities", "metacommunities")),
    "batch": ("iu", ("nodes",)),
    "features": ("f", ("nodes", "features")),
    "community_embeddings": ("f", ("nodes", "metacommunities", "columns")),
}
"""Kinds of NumPy types, and the size of each dimension, of the arrays over nodes and edges."""
OF_ITEMS: Shapes = {
    "y": ("iu", ("items",)),
    "prediction": ("iu", ("items",)),
    "probabilities": ("f", ("items", "classes")),
    "log_odds": ("f", ("items",)),
    "log_odds_without": ("f", ("items", "metacommunities")),
    "label_without": ("iu", ("items", "metacommunities")),
    **{f"{split}_mask": ("biu", ("items",)) for split in SPLITS},
}
"""The same for arrays over items: nodes in a node task, graphs in a graph task."""
# Beyond single precision, sums and products would overflow.
LARGEST = float(np.finfo(np.float32).max)
# A share may exceed one by a rounding error.
SHARE = (0, 1.001)
RANGES = {
    **dict.fromkeys(("edge_weight", "assignment", "probabilities"), SHARE),
    **dict.fromkeys(("memberships", "activation"), (0, LARGEST)),
}


def check_outputs(path: Path, outputs: Arrays, task: str) -> dict[str, int]:
    """The sizes of the dimensions; an InputError names the first array that does not fit."""
    sizes: dict[str, int] = {}
    for problem in _problems(outputs, sizes, single_graph=TASKS[task].single_graph):
        raise InputError(f"{path}: {problem}; train again to rewrite it")
    return sizes


def _problems(outputs: Arrays, sizes: dict[str, int], *, single_graph: bool) -> Iterator[str]:
    """What is wrong; what follows a problem relies on what it says being right."""
    for name in REQUIRED if single_graph else (*REQUIRED, "batch"):
        if name not in outputs:
            yield f"no array {name!r}"
    yield from _misfits(outputs, OF_NODES, sizes)
    if not sizes["nodes"]:
        yield "no nodes"
    if not 1 <= sizes["metacommunities"] <= sizes["communities"]:
        yield f"{sizes['metacommunities']} metacommunities of {sizes['communities']} communities"
    yield from _outside(outputs, "edge_index", 0, sizes["nodes"])
    if single_graph:
        sizes["items"] = sizes["nodes"]
    elif "y" not in outputs:
        # The batch alone says how many graphs there are: at most one a node.
        sizes["items"] = min(int(outputs["batch"].max()) + 1, sizes["nodes"])
    yield from _misfits(outputs, OF_ITEMS, sizes)
    if not single_graph:
        yield from _outside(outputs, "batch", 0, sizes["items"])
    given = [name for name in ATTRIBUTION if name in outputs]
    if 0 < len(given) < len(ATTRIBUTION):
        yield f"{given[0]} without {', '.join(set(ATTRIBUTION) - set(given))}"
    for name in ("y", "prediction", "label_without"):
        yield from _outside(outputs, name, -1, MOST_CLASSES)


def _misfits(outputs: Arrays, shapes: Shapes, sizes: dict[str, int]) -> Iterator[str]:
    """Wrong types, sizes at odds with those of earlier arrays, and values out of range."""
    for name, (kinds, shape) in shapes.items():
        if name not in outputs:
            continue
        array = outputs[name]
        if array.ndim != len(shape):
            yield f"{name} has {array.ndim} dimensions, not {len(shape)}"
        if array.dtype.kind not in kinds:
            yield f"{name} holds {array.dtype}"
        for dimension, size in zip(shape, array.shape, strict=True):
            wanted = sizes.setdefault(str(dimension), 2 if dimension == 2 else size)
            if size != wanted:
                yield f"{name} is {array.shape}, with {size} instead of {wanted} {dimension}"
        low, high = RANGES.get(name, (-LARGEST, LARGEST))
        # In double precision, because the bounds overflow half precision. Some patterns of bits
        # that are no numbers would make NumPy warn of the conversion.
        with np.errstate(invalid="ignore"):
            values = array.astype(np.float64) if array.dtype.kind == "f" else np.zeros(0)
        if not ((low <= values) & (values <= high)).all():
            yield f"{name} holds values that are not between {low:g} and {high:g}"


def _outside(outputs: Arrays, name: str, low: int, count: int) -> Iterator[str]:
    found = outputs.get(name)
    if found is not None and found.size and not low <= found.min() <= found.max() < count:
        yield f"{name} holds numbers outside {low} to {count - 1}"
