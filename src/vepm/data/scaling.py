"""The scale of feature columns as a model measures it, and spectral coordinates of nodes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from vepm.data.canonical import canonical_edges, is_sparse
from vepm.data.dataset import Dataset

DEGREE_FEATURES = ("one", "log_degree")
NUM_POSITIONS = 16
# With fewer columns that differ between nodes, coordinates stand beside them, by ``feature_norm``.
_FEW_COLUMNS = {"auto": 16, "coordinates": math.inf}
_ITERATIONS = 60
LARGEST_RATIO = 1000.0  # by which a column of a bag of words may differ in size from the others
_COLUMNS_AT_ONCE = 64
_ROWS_AT_ONCE = 2**16


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


_COORDINATES: WeakKeyDictionary[Dataset, Tensor] = WeakKeyDictionary()


def with_coordinates(dataset: Dataset) -> Dataset:
    """One graph with its spectral coordinates as the last columns, computed once per dataset."""
    if dataset.num_positions:
        return dataset
    graph = dataset.graphs[0].clone()
    if dataset not in _COORDINATES:
        # Of a directed graph there is only one direction of each edge.
        edge_index, _ = canonical_edges(graph.edge_index, graph.x.size(0))
        _COORDINATES[dataset] = positions(edge_index, graph.x.size(0))
    graph.x = torch.cat([graph.x, _COORDINATES[dataset]], dim=1)
    return replace(dataset, graphs=[graph], feature_names=None, num_positions=NUM_POSITIONS)


def needs_coordinates(dataset: Dataset, feature_norm: str = "auto") -> bool:
    """Whether a graph has so few features that its coordinates should stand beside them."""
    x, few = dataset.graphs[0].x, _FEW_COLUMNS.get(feature_norm, 0)
    # Graphs without features have them already; in several graphs they differ in meaning.
    if not few or not dataset.single_graph or dataset.num_positions or is_sparse(x):
        return False
    return int((x != x[:1]).any(0).sum()) < few


@dataclass(frozen=True, eq=False)
class Scaling:
    """How the columns of a feature table are brought to one scale.

    Dense columns, of whose entries more than half are not zero and some neither zero nor one, are
    standardised and divided by the root of their number: a row of them has length 1 on average.
    All others, such as words and one-hot categories, are kept, but each row of them gets length 1.
    One of another size than its like, such as an amount that is mostly zero, counts as dense.
    Constant columns become zero; spectral coordinates are divided by the root of their number.
    """

    center: Tensor  # what is subtracted from each column [F], float64; 0 for kept columns
    factor: Tensor  # what each column is multiplied by then [F], float64
    kept: Tensor  # which columns belong to rows of length 1 [F]

    @classmethod
    def of(cls, x: Tensor, num_positions: int = 0) -> Self:
        """Measure a table [N, F] whose last columns may be coordinates."""
        center = torch.zeros(x.size(1), dtype=torch.float64)
        if is_sparse(x):
            factor = torch.full_like(center, _unit(x.values().abs().double()))
            return cls(center, factor, torch.ones(x.size(1), dtype=torch.bool))
        width = x.size(1) - num_positions
        mean, deviation, largest, binary, share = _measure(x[:, :width])
        varied = deviation > 0
        kept = varied & (binary | (share <= 0.5))
        typical = largest[kept].median() if kept.any() else largest.new_ones(())
        kept &= binary | ((largest / typical).log().abs() <= torch.tensor(LARGEST_RATIO).log())
        dense, factor = varied & ~kept, torch.zeros_like(center)
        factor[:width][kept] = _unit(largest[kept])
        factor[:width][dense] = 1 / (deviation[dense] * int(dense.sum()) ** 0.5)
        factor[width:] = max(num_positions, 1) ** -0.5
        center[:width][dense] = mean[dense]
        return cls(center, factor, torch.cat([kept, kept.new_zeros(num_positions)]))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], width: int) -> Self:
        """The scaling behind :meth:`tensors`; ValueError if they do not fit."""
        kinds = {"center": torch.float64, "factor": torch.float64, "kept": torch.bool}
        if {name: tensor.dtype for name, tensor in tensors.items()} != kinds or not all(
            tensor.shape == (width,) and tensor.isfinite().all() for tensor in tensors.values()
        ):
            raise ValueError("its scales of columns are missing, damaged or not finite")
        return cls(**tensors)

    def tensors(self) -> dict[str, Tensor]:
        """The scaling as a file of tensors can hold it."""
        return dict(vars(self))

    def __call__(self, x: Tensor) -> Tensor:
        """A table [N, F] with its columns at the scale of training."""
        if not is_sparse(x):
            parts = []
            for rows in x.split(_ROWS_AT_ONCE):
                # In double precision neither 1e-27 nor 3e19 is lost when it is squared.
                scaled = (rows.double() - self.center) * self.factor
                kept = scaled[:, self.kept]
                lengths = kept.norm(dim=1, keepdim=True)
                scaled[:, self.kept] = kept / lengths.where(lengths > 0, 1.0)
                parts.append(scaled.float())
            return torch.cat(parts)
        row, column = x.indices()
        values = x.values().double() * self.factor[column]
        squares = values.new_zeros(x.size(0)).index_add(0, row, values.square())
        values = values / squares.sqrt().where(squares > 0, 1.0)[row]
        return torch.sparse_coo_tensor(
            x.indices(), values.float(), x.shape, is_coalesced=True, check_invariants=False
        )


def _measure(x: Tensor) -> tuple[Tensor, ...]:
    """Mean, deviation, largest size, whether all is 0 or 1, share of non-zeros, of each column."""
    found = []
    for part in x.split(_COLUMNS_AT_ONCE, dim=1):
        wide = part.double()
        variance, mean = torch.var_mean(wide, dim=0, correction=0)
        low, high = part.aminmax(dim=0)
        # Rounding must not make a constant column look like one that varies.
        deviation = torch.where(low == high, 0.0, variance.sqrt())
        binary = ((part == 0) | (part == 1)).all(0)
        found.append((mean, deviation, wide.abs().amax(0), binary, (part != 0).double().mean(0)))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _unit(sizes: Tensor) -> float:
    """One over the largest size to the nearest power of two, which rounds no entry."""
    largest = sizes.max() if sizes.numel() else sizes.new_ones(())
    return float(torch.exp2(-largest.log2().floor())) if largest > 0 else 1.0
