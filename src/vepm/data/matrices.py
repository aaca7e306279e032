"""Graphs as matrices: (X, A, y) with NumPy arrays, SciPy sparse matrices or data frames."""

from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from vepm.data.build import Parts, ReadOptions, refuse_choice
from vepm.data.columns import Features, encode_columns
from vepm.data.features import feature_table, from_scipy
from vepm.errors import InputError


def matrix_parts(
    x: Any,
    adjacency: Any,
    y: Any = None,
    *,
    name: str,
    source: str,
    options: ReadOptions,
    kinds: tuple[Tensor, tuple[str, ...]] | None = None,
    **more: Any,
) -> Parts:
    """A node task from matrices.

    Args:
        x: features [N, F] or None.
        adjacency: a square matrix [N, N]; entries that are not zero are edges, and their weights.
        y: labels [N] or None.
        name: what to call the data.
        source: where they came from.
        options: what a user or a model asks for.
        kinds: the kinds of the stored entries of a sparse adjacency matrix, and their names.
        more: other fields of :class:`Parts`.
    """
    coo = _entries(adjacency, source)
    present = coo.data != 0
    num_nodes = int(coo.shape[0])
    ends = np.stack([coo.row[present], coo.col[present]]).astype(np.int64)
    table, names, unused = _features(x, num_nodes, source, options)
    if kinds is not None:
        kinds = (kinds[0][torch.from_numpy(present)], kinds[1])
    return Parts(
        name=name,
        source=source,
        edges=torch.from_numpy(ends),
        num_nodes=num_nodes,
        x=table,
        feature_names=names,
        labels=y,
        weights=torch.from_numpy(coo.data[present].astype(np.float64)),
        weight_at=lambda i: f"{source}, entry {ends[:, i].tolist()} of the adjacency matrix",
        kinds=kinds,
        unused=[*unused, *more.pop("unused", ())],
        **more,
    )


def _entries(adjacency: Any, source: str) -> Any:
    """The stored entries of a square matrix."""
    matrix: Any = adjacency if sp.issparse(adjacency) else np.asarray(adjacency)
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
    return coo


def _features(x: Any, num_nodes: int, source: str, options: ReadOptions) -> Features:
    if x is None:
        refuse_choice(source, options)
        return None, None, []
    if hasattr(x, "columns") and any(isinstance(name, str) for name in x.columns):
        return _from_frame(x, num_nodes, source, options)
    refuse_choice(source, options)
    return feature_table(_tensor(x, source), num_nodes, source), None, []


def _from_frame(x: Any, num_nodes: int, source: str, options: ReadOptions) -> Features:
    """Features from a data frame of any library; its constant columns are kept."""
    names = list(x.columns)
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{source}: some column names are text and some are not; rename them")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise InputError(f"{source}: there are {count} feature columns '{name}'; rename them")
    cells = np.asarray(x)
    if cells.shape != (num_nodes, len(names)):
        raise InputError(
            f"{source}: features have shape {list(cells.shape)}; {num_nodes} rows, one per node, "
            "are needed"
        )
    return encode_columns(
        dict(zip(names, cells.T.tolist(), strict=True)),
        lambda i, name: f"{source}: feature of node {i}, column {name}",
        options,
        source,
        constants=True,
    )


def _tensor(x: Any, source: str) -> Tensor:
    if isinstance(x, Tensor):
        return x
    sparse: bool = sp.issparse(x)
    if sparse and x.dtype.kind in "biuf" and x.ndim == 2:
        return from_scipy(x)
    array: NDArray[Any] = x.toarray() if sparse else np.asarray(x)
    if array.dtype.kind not in "biufO":
        raise InputError(f"{source}: features hold {array.dtype}; numbers are needed")
    try:
        return torch.from_numpy(array.astype(np.float64))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{source}: features are not all numbers; give an array [N, F]") from None
