"""Node features: dense or sparse tables, degrees and coordinates for graphs without any."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array
from torch import Tensor

from vepm.errors import InputError

MOST_DENSE_ENTRIES = 10_000_000
"""Sparse features with up to this many entries, zeros included, become a dense table."""
MOST_COLUMNS = 2**22  # a weight matrix has a row for each column
DEGREE_FEATURES = ("one", "log_degree")
NUM_POSITIONS = 16
_ITERATIONS = 60


def is_sparse(x: Any) -> bool:
    """Whether features are kept as their non-zero entries."""
    return isinstance(x, Tensor) and x.layout != torch.strided


def shape_of(value: object) -> str:
    """The shape of a tensor, or the type of what is none, for messages."""
    if value is None:
        return "missing"
    return str(list(value.shape)) if isinstance(value, Tensor) else type(value).__name__


def feature_table(x: Any, num_nodes: int, source: str) -> Tensor:
    """Features as float32 [num_nodes, F], sparse only where a dense table would be too large."""
    wrong = None
    if not isinstance(x, Tensor):
        wrong = f"are {type(x).__name__}; give a tensor [nodes, F]"
    elif x.dim() != 2 or x.size(0) != num_nodes or x.is_complex():
        needed = f"{num_nodes} rows of real numbers, one per node, are needed"
        wrong = f"have shape {list(x.shape)}; {needed}"
    elif x.size(1) == 0:
        wrong = "have no columns; leave them out to use degrees"
    elif x.size(1) > MOST_COLUMNS:
        wrong = f"have {x.size(1)} columns; at most {MOST_COLUMNS} can be learned from"
    if wrong:
        raise InputError(f"{source}: features {wrong}")
    x = x.detach().cpu()
    if not is_sparse(x):
        return x.float().contiguous()
    if x.numel() <= MOST_DENSE_ENTRIES:
        return x.to_dense().float()
    return x.to_sparse_coo().coalesce().float()


def check_finite(
    x: Tensor, source: str, names: Sequence[str] | None = None, batch: Tensor | None = None
) -> None:
    """Refuse features that are not finite numbers, naming the first of them."""
    values = x.values() if is_sparse(x) else x
    bad = (~torch.isfinite(values)).nonzero()
    if not bad.numel():
        return
    row, column = (x.indices()[:, bad[0, 0]] if is_sparse(x) else bad[0]).tolist()
    value = float(values[tuple(bad[0])])
    if batch is not None:
        source = f"{source}, graph {int(batch[row])}"
        row -= int((batch < batch[row]).sum())
    raise InputError(
        f"{source}: feature of node {row}, column {names[column] if names else column} is {value} "
        "(as float32); give a finite number"
    )


def structural_features(
    edge_index: Tensor, num_nodes: int, *, coordinates: bool
) -> tuple[Tensor, tuple[str, ...]]:
    """Features of a graph without any, and their names.

    A constant and log(1 + degree) mean the same in every graph, coordinates only in this one.
    """
    degree = torch.bincount(edge_index[1], minlength=num_nodes).float()
    x = torch.stack([torch.ones(num_nodes), degree.log1p()], dim=1)
    if not coordinates:
        return x, DEGREE_FEATURES
    names = (*DEGREE_FEATURES, *(f"position_{i + 1}" for i in range(NUM_POSITIONS)))
    return torch.cat([x, positions(edge_index, num_nodes)], dim=1), names


def positions(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Leading eigenvectors of the normalised adjacency matrix [N, 16], padded with zeros.

    Degrees alone cannot tell one community from another. Subspace iteration from a fixed start is
    linear in the number of edges and gives the same result on every run.
    """
    size = min(NUM_POSITIONS, num_nodes)
    out = torch.zeros(num_nodes, NUM_POSITIONS)
    if edge_index.size(1) == 0:
        return out
    source, target = edge_index.numpy()
    scale = np.bincount(target, minlength=num_nodes).clip(1) ** -0.5
    weight = scale[source] * scale[target]
    adjacency = coo_array((weight, (target, source)), shape=(num_nodes, num_nodes)).tocsr()
    basis = np.random.default_rng(0).standard_normal((num_nodes, size))
    for _ in range(_ITERATIONS):
        # Adding the identity makes eigenvalues non-negative, so that the largest dominate.
        basis, _ = np.linalg.qr(adjacency @ basis + basis)
    _, rotation = np.linalg.eigh(basis.T @ (adjacency @ basis))
    vectors = basis @ rotation[:, ::-1]
    heaviest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[heaviest, np.arange(size)])
    out[:, :size] = torch.from_numpy(vectors * num_nodes**0.5).float()
    return out
