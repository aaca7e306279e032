"""Edges, their weights and kinds, and node features in canonical form."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from vepm.errors import InputError

MOST_KINDS = 63
KIND_SEPARATOR = "|"
MOST_DENSE_ENTRIES = 10_000_000  # sparse features with no more, zeros included, are made dense
MOST_COLUMNS = 2**22  # a weight matrix has a row for each column
DEGREE_FEATURES = ("one", "log_degree")
NUM_POSITIONS = 16
_ITERATIONS = 60

Kinds = tuple[Tensor, tuple[str, ...]]
"""A table [M, R] that says of which kinds each edge is, and the names of the kinds."""


def canonical_edges(
    edge_index: Tensor, num_nodes: int, *, source: str = "data", directed: bool = False
) -> tuple[Tensor, list[str]]:
    """Canonical edges [2, E], sorted by destination and then source, and in words what changed.

    Both directions of every edge, or if ``directed`` those that were listed, once each.
    """
    for i in ((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0).nonzero().flatten()[:1]:
        ends = " and ".join(map(str, edge_index[:, i].tolist()))
        nodes = f"nodes run from 0 to {num_nodes - 1}; correct the index or add the node"
        raise InputError(f"{source}: edge {int(i)} joins {ends}, but {nodes}")
    row, col = edge_index.numpy()
    proper = row != col
    keys = listed = _unique((col * num_nodes + row)[proper])
    if not directed:
        keys = _unique(
            np.concatenate([listed, listed % num_nodes * num_nodes + listed // num_nodes])
        )
    count = int(proper.sum())
    counts = {
        "removed {} self-loop": row.size - count,
        "merged {} duplicate edge": count - listed.size,
        "added {} missing reverse edge": keys.size - listed.size,
    }
    changes = [text.format(n) + "s" * (n > 1) for text, n in counts.items() if n]
    edges = torch.empty(2, keys.size, dtype=torch.long)
    np.floor_divide(keys, num_nodes, out=edges[1].numpy())
    np.remainder(keys, num_nodes, out=edges[0].numpy())
    return edges, changes


def _unique(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorted in place: for tens of millions, NumPy's own takes twice the memory and far longer."""
    keys.sort()
    return keys[np.diff(keys, prepend=-1) > 0]


def canonical_weights(
    edge_index: Tensor, listed: Tensor, weights: Tensor, directed: bool, add: bool
) -> Tensor | None:
    """The weights of canonical edges [E], given those [M] of the edges as they were listed [2, M].

    None if all are 1. Weights of an edge that is listed several times in one direction are added
    up, and so are both directions with ``add``, or if they differ for any edge.
    """
    if bool((weights == 1).all()):
        return None
    found, back = _totals(edge_index, listed, weights.double(), directed)
    differ = (found > 0) & (back > 0) & ~torch.isclose(found, back)
    return (found + back if add or bool(differ.any()) else torch.maximum(found, back)).float()


def canonical_kinds(
    edge_index: Tensor, listed: Tensor, kinds: Tensor, directed: bool = False
) -> Tensor:
    """The kinds of canonical edges [E, R]: all [M, R] that an edge was listed with, either way."""
    found, back = _totals(edge_index, listed, kinds.float(), directed)
    return found + back > 0


def _totals(
    edge_index: Tensor, listed: Tensor, values: Tensor, directed: bool
) -> tuple[Tensor, Tensor]:
    """Values of listed edges added up at the canonical ones, and at those in reverse."""
    base = int(edge_index.max()) + 1 if edge_index.numel() else 1
    keys, proper = edge_index[1] * base + edge_index[0], listed[0] != listed[1]
    row, col = listed[:, proper]
    found = values.new_zeros(keys.numel(), *values.shape[1:])
    back = found.clone()
    for total, wanted in ((found, col * base + row), (back, row * base + col)):
        if not (directed and total is back):
            # Sorted queries are found ten times as fast as those in random order.
            wanted, order = wanted.sort()
            total.index_add_(0, torch.searchsorted(keys, wanted), values[proper][order])
    return found, back


def kinds_from_text(values: Sequence[str], source: str) -> Kinds:
    """Kinds written as text, several separated by ``|``."""
    split = [{kind.strip() for kind in value.split(KIND_SEPARATOR)} for value in values]
    names = tuple(sorted(set().union(*split) - {""}))
    _check_count(len(names), source)
    table = [[name in row for name in names] for row in split]
    return torch.tensor(table, dtype=torch.bool).reshape(len(values), len(names)), names


def kind_table(kinds: Tensor, names: Sequence[str] | None, source: str) -> Kinds:
    """Kinds given as bit masks [M] or as a table [M, R], with or without names."""
    bits = kinds.dim() == 1
    if kinds.is_floating_point() or kinds.dim() > 2 or (bits and bool((kinds < 0).any())):
        needed = "give a bit mask per edge, not negative, or a column of True and False per kind"
        raise InputError(f"{source}: edge_kind is {list(kinds.shape)} of {kinds.dtype}; {needed}")
    if bits:
        largest = int(kinds.max()) if kinds.numel() else 0
        count = max(largest.bit_length(), len(names or ()))
        kinds = kinds.long()[:, None] >> torch.arange(count) & 1
    _check_count(kinds.size(1), source)
    names = [f"kind {i}" for i in range(kinds.size(1))] if names is None else names
    if len(names) != kinds.size(1) or len(set(names)) != len(names):
        found = f"{len(set(names))} different kind_names for {kinds.size(1)} kinds of edges"
        raise InputError(f"{source}: {found}; give one name per kind")
    return kinds.bool(), tuple(names)


def _check_count(count: int, source: str) -> None:
    if count > MOST_KINDS:
        found = f"edges are of {count} kinds, at most {MOST_KINDS} can be told apart"
        raise InputError(f"{source}: {found}; use fewer, or rename the column if it holds no kinds")


def is_sparse(x: Any) -> bool:
    """Whether features are kept as their non-zero entries."""
    return isinstance(x, Tensor) and x.layout != torch.strided


def feature_table(x: Any, num_nodes: int, source: str) -> Tensor:
    """A tensor, array or SciPy matrix as float32 [num_nodes, F], sparse only if it is too large."""
    if not isinstance(x, Tensor):
        sparse: bool = sp.issparse(x)
        coo: Any = sp.coo_array(x) if sparse else None
        array = coo.data if sparse else np.asarray(x)
        try:
            if array.dtype.kind not in "biufO":
                raise TypeError
            x = torch.from_numpy(array.astype(np.float64))
        except (TypeError, ValueError, OverflowError):
            wrong = f"{source}: features are not all numbers; give an array [N, F]"
            raise InputError(wrong) from None
        if sparse:
            where = torch.from_numpy(np.stack(coo.coords).astype(np.int64))
            x = torch.sparse_coo_tensor(where, x, coo.shape, check_invariants=True)
    if x.dim() != 2 or x.size(0) != num_nodes or x.is_complex():
        needed = f"{num_nodes} rows of real numbers, one per node, are needed"
        raise InputError(f"{source}: features have shape {list(x.shape)}; {needed}")
    if not 0 < x.size(1) <= MOST_COLUMNS:
        needed = f"give at most {MOST_COLUMNS}, or leave features out to use degrees"
        raise InputError(f"{source}: features have {x.size(1)} columns; {needed}")
    x, kept = x.detach().cpu(), is_sparse(x) and x.numel() > MOST_DENSE_ENTRIES
    x = (x.to_sparse_coo().coalesce() if kept else x.to_dense().contiguous()).float()
    values = x.values() if kept else x
    for place in (~torch.isfinite(values)).nonzero()[:1]:
        row, column = (x.indices()[:, place[0]] if kept else place).tolist()
        found = f"feature of node {row}, column {column} is {float(values[tuple(place)])}"
        raise InputError(f"{source}: {found} (as float32); give a finite number")
    return x


def structural_features(
    edge_index: Tensor, num_nodes: int, *, coordinates: bool
) -> tuple[Tensor, tuple[str, ...]]:
    """Features of a graph without any, and their names; coordinates differ between graphs."""
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
    size, out = min(NUM_POSITIONS, num_nodes), torch.zeros(num_nodes, NUM_POSITIONS)
    if edge_index.size(1) == 0:
        return out
    source, target = edge_index.numpy()
    scale = np.bincount(target, minlength=num_nodes).clip(1) ** -0.5
    weight = scale[source] * scale[target]
    adjacency = sp.coo_array((weight, (target, source)), shape=(num_nodes, num_nodes)).tocsr()
    basis = np.random.default_rng(0).standard_normal((num_nodes, size))
    for _ in range(_ITERATIONS):
        # Adding the identity makes eigenvalues non-negative, so that the largest dominate.
        basis, _ = np.linalg.qr(adjacency @ basis + basis)
    _, rotation = np.linalg.eigh(basis.T @ (adjacency @ basis))
    vectors = basis @ rotation[:, ::-1]
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(size)])
    out[:, :size] = torch.from_numpy(vectors * num_nodes**0.5).float()
    return out
