"""Inputs of estimators other than graphs: class weights, nodes by index, names and numbers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from vepm.data import Dataset
from vepm.errors import InputError
from vepm.schema import unknown

Array = NDArray[Any]
ClassWeight = Mapping[Any, float] | str | None
LEAST_WEIGHT = 1e-9


def class_weights(given: ClassWeight, names: tuple[str, ...], labels: Array) -> Tensor:
    """Weight of each class, one on average over the training labels."""
    weights = np.ones(len(names))
    if isinstance(given, Mapping):
        by_name = {str(plain(label)): float(weight) for label, weight in given.items()}
        for name in sorted(by_name.keys() - set(names)):
            raise unknown(name, names, "class_weight")
        weights = np.array([by_name.get(name, 1.0) for name in names])
    elif given == "balanced":
        found = np.unique(labels)
        weights[found] = compute_class_weight("balanced", classes=found, y=labels)
    else:
        raise InputError(f"class_weight must be None, 'balanced' or a dict, got {given!r}")
    mean = weights[labels].mean()
    if not (np.isfinite(weights).all() and (weights >= 0).all() and mean > 0):
        raise InputError("class_weight: weights must be finite, not negative and not all 0")
    # Validation labels may all be of classes of weight 0, and still choose the epoch.
    return torch.from_numpy(np.maximum(weights / mean, LEAST_WEIGHT)).float()


def unlabelled(dataset: Dataset) -> Dataset:
    """The dataset without classes, for a model that sees no labels."""
    return replace(dataset, num_classes=0, class_names=())


def plain(value: Any) -> Any:
    """NumPy's numbers, common in parameter grids, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def node_indices(X: Any, num_nodes: int) -> Tensor:
    """Indices of nodes of a bound graph, given as [n] or [n, 1]."""
    try:
        nodes = column_or_1d(np.asarray(X))
    except ValueError:
        nodes = np.empty(0)
    if not nodes.size or nodes.dtype.kind not in "iuf" or (nodes != nodes.round()).any():
        wanted = "integers, the indices of nodes, as graph= was given"
        raise InputError(f"X must be {wanted}; for other graphs leave graph= out")
    for node in nodes[(nodes < 0) | (nodes >= num_nodes)]:
        raise InputError(f"X holds node {int(node)}; the graph has nodes 0 to {num_nodes - 1}")
    return torch.from_numpy(nodes.astype(np.int64))


def node_names(X: Any, dataset: Dataset) -> list[Any]:
    """What users call the nodes: NetworkX's node objects, ids as text, or indices."""
    if isinstance(X, nx.Graph):
        return list(X)
    return dataset.item_names if dataset.node_names else list(range(dataset.labels.numel()))
