"""Spectral coordinates: features of a graph that has few of its own, or none."""

import math
from dataclasses import replace
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
