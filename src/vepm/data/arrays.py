"""Graphs as matrices: (X, A, y) with NumPy arrays or SciPy sparse matrices."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.assemble import node_dataset
from vepm.data.cleaning import canonical_edges, check_features, report
from vepm.data.dataset import Dataset
from vepm.data.labels import as_integers, encode_integers, encode_text
from vepm.data.sparse import from_scipy
from vepm.errors import InputError


def from_matrices(
    x: Any,
    adjacency: Any,
    y: Any = None,
    *,
    name: str,
    source: str,
    class_names: Sequence[str] | None = None,
    strict: bool = False,
) -> Dataset:
    """A node task from features [N, F] or None, adjacency [N, N] and labels [N] or None."""
    edges, num_nodes = _edges(adjacency, source)
    edge_index, found = canonical_edges(edges, num_nodes, source=source)
    report(found, source, strict=strict)
    data = Data(edge_index=edge_index, num_nodes=num_nodes)
    columns = _column_names(x, source)
    if x is not None:
        data.x = check_features(_features(x, source), num_nodes, source, columns)
    data.y, names = _labels(y, num_nodes, source, class_names)
    return node_dataset(data, name=name, source=source, class_names=names, feature_names=columns)


def _column_names(x: Any, source: str) -> list[str] | None:
    """The column names of a data frame, of whatever library; None if they are not text."""
    names = list(getattr(x, "columns", ()))
    if not any(isinstance(name, str) for name in names):
        return None
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{source}: some column names are text and some are not; rename them")
    return names


def _edges(adjacency: Any, source: str) -> tuple[Tensor, int]:
    """The non-zero entries of a square matrix [2, M], and its size."""
    matrix: Any = adjacency if _is_sparse(adjacency) else np.asarray(adjacency)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"{source}: the adjacency matrix is {list(matrix.shape)}; it must be square, "
            "one row and column per node"
        )
    if matrix.shape[0] == 0:
        raise InputError(f"{source}: the adjacency matrix has no nodes; give at least one")
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"{source}: the adjacency matrix holds {matrix.dtype}; numbers are needed")
    coo = sp.coo_array(matrix)
    if not np.isfinite(coo.data).all():
        raise InputError(f"{source}: the adjacency matrix holds NaN or infinity; 0 means no edge")
    present = coo.data != 0
    ends = np.stack([coo.row[present], coo.col[present]]).astype(np.int64)
    return torch.from_numpy(ends), int(matrix.shape[0])


def _is_sparse(matrix: Any) -> bool:
    return sp.issparse(matrix)


def _features(x: Any, source: str) -> Tensor:
    if isinstance(x, Tensor):
        return x
    if _is_sparse(x) and x.dtype.kind in "biuf" and x.ndim == 2:
        return from_scipy(x)
    array = x.toarray() if _is_sparse(x) else np.asarray(x)
    if array.dtype.kind not in "biufO":
        raise InputError(f"{source}: features hold {array.dtype}; numbers are needed")
    try:
        return torch.from_numpy(array.astype(np.float64))
    except (TypeError, ValueError):
        raise InputError(f"{source}: features are not all numbers; give an array [N, F]") from None


def _labels(
    y: Any, num_nodes: int, source: str, class_names: Sequence[str] | None
) -> tuple[Tensor, tuple[str, ...]]:
    if y is None:
        return torch.full((num_nodes,), -1), tuple(class_names or ())
    array = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if array.shape not in ((num_nodes,), (num_nodes, 1)):
        raise InputError(
            f"{source}: labels have shape {list(array.shape)}; one per node ([{num_nodes}]) needed"
        )
    array = array.reshape(-1)
    if array.dtype.kind in "biuf":
        dtype = np.float64 if array.dtype.kind == "f" else np.int64
        labels = as_integers(torch.from_numpy(array.astype(dtype)), source)
        return encode_integers(labels, source, class_names)
    text = ["" if value is None else str(value) for value in array.tolist()]
    return encode_text(text, lambda i: f"{source}, label {i}", class_names)
