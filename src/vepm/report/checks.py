"""Whether the arrays of a run fit together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vepm.errors import InputError
from vepm.runs.schema import MOST_CLASSES
from vepm.tasks import TASKS

Arrays = Mapping[str, NDArray[Any]]

REQUIRED = ("edge_index", "edge_weight", "memberships", "activation")
PER_NODE = ("community_embeddings", "features", "batch")
ATTRIBUTION = ("log_odds", "log_odds_without", "label_without")
MASKS = ("train_mask", "val_mask", "test_mask")
PER_ITEM = ("prediction", "probabilities", *ATTRIBUTION, *MASKS)
INTEGERS = {"edge_index": 2, "batch": 1, "y": 1, "prediction": 1, "label_without": 2}
"""Arrays of integers, and how many dimensions they have."""
REALS = {
    "edge_weight": 2,
    "memberships": 2,
    "activation": 1,
    "assignment": 2,
    "probabilities": 2,
    "community_embeddings": 3,
    "embeddings": 2,
    "log_odds": 1,
    "log_odds_without": 2,
    "features": 2,
    "x_top": 2,
}
"""The same for arrays of real numbers."""


def check_outputs(path: Path, outputs: Arrays, task: str) -> None:
    """Raise an InputError that names the first array that does not fit."""
    problem = (
        _missing(outputs, task)
        or _wrong_kinds(outputs)
        or _wrong_edges(outputs)
        or _wrong_lengths(outputs, task)
        or _wrong_attribution(outputs)
        or _wrong_classes(outputs)
        or _not_finite(outputs)
    )
    if problem:
        raise InputError(f"{path}: {problem}; train again to rewrite it")


def _missing(outputs: Arrays, task: str) -> str | None:
    needed = REQUIRED if TASKS[task].single_graph else (*REQUIRED, "batch")
    for name in needed:
        if name not in outputs:
            return f"no array {name!r}"
    return None


def _wrong_kinds(outputs: Arrays) -> str | None:
    masks = dict.fromkeys(MASKS, 1)
    for kinds, known in (("iu", INTEGERS), ("f", REALS), ("biu", masks)):
        for name, dimensions in known.items():
            if name not in outputs:
                continue
            if outputs[name].ndim != dimensions:
                return f"{name} has {outputs[name].ndim} dimensions, not {dimensions}"
            if outputs[name].dtype.kind not in kinds:
                return f"{name} holds {outputs[name].dtype}"
    return None if len(outputs["memberships"]) else "no nodes"


def _wrong_edges(outputs: Arrays) -> str | None:
    edges, shares, z = outputs["edge_index"], outputs["edge_weight"], outputs["memberships"]
    if edges.shape[0] != 2 or edges.shape[1] != len(shares):
        return f"edge_index {edges.shape} does not match edge_weight {shares.shape}"
    if edges.size and not 0 <= edges.min() <= edges.max() < len(z):
        return f"edge_index points outside the {len(z)} nodes"
    if z.shape[1] != len(outputs["activation"]):
        return f"{z.shape[1]} communities in memberships, {len(outputs['activation'])} activations"
    if not 1 <= shares.shape[1] <= z.shape[1]:
        return f"{shares.shape[1]} metacommunities of {z.shape[1]} communities"
    grouped = (z.shape[1], shares.shape[1])
    if "assignment" in outputs and outputs["assignment"].shape != grouped:
        return f"assignment {outputs['assignment'].shape} of communities to metacommunities"
    return None


def _wrong_lengths(outputs: Arrays, task: str) -> str | None:
    nodes = len(outputs["memberships"])
    for name in PER_NODE:
        if name in outputs and len(outputs[name]) != nodes:
            return f"{name} has {len(outputs[name])} rows for {nodes} nodes"
    if TASKS[task].single_graph:
        items = nodes
    else:
        # Without labels the batch alone says how many graphs there are: at most one a node.
        graphs = min(int(outputs["batch"].max()) + 1, nodes)
        items = len(outputs["y"]) if "y" in outputs else graphs
        if outputs["batch"].min() < 0 or outputs["batch"].max() >= items:
            return f"batch points outside the {items} graphs"
    for name in ("y", *PER_ITEM):
        if name in outputs and len(outputs[name]) != items:
            return f"{name} has {len(outputs[name])} rows for {items} {task}s"
    return None


def _wrong_attribution(outputs: Arrays) -> str | None:
    given = [name for name in ATTRIBUTION if name in outputs]
    if given and set(given) != set(ATTRIBUTION):
        return f"{given[0]} without {', '.join(set(ATTRIBUTION) - set(given))}"
    wanted = outputs["edge_weight"].shape[1]
    for name in ATTRIBUTION[1:] if given else ():
        if outputs[name].shape[1:] != (wanted,):
            return f"{name} {outputs[name].shape} does not match {wanted} metacommunities"
    return None


def _wrong_classes(outputs: Arrays) -> str | None:
    for name in ("y", "prediction", "label_without"):
        found = outputs.get(name)
        if found is not None and found.size and not -1 <= found.min() <= found.max() < MOST_CLASSES:
            return f"{name} holds numbers that cannot be classes"
    return None


def _not_finite(outputs: Arrays) -> str | None:
    for name in REALS:
        if name in outputs and not np.isfinite(outputs[name]).all():
            return f"{name} holds values that are not finite numbers"
    return None
