"""Features for nodes that have none: where a node sits in its graph."""

from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import coo_array
from torch import Tensor

from vepm.data.cleaning import DEGREE_FEATURES
from vepm.data.dataset import Dataset

NUM_POSITIONS = 16
_ITERATIONS = 60


def with_positions(dataset: Dataset) -> Dataset:
    """Give the nodes of a graph without features spectral coordinates beside their degrees.

    Degrees alone cannot tell one community from another. Coordinates belong to one graph, so
    sets of graphs keep to degrees, which mean the same in all of them.
    """
    if not dataset.single_graph or dataset.feature_names != DEGREE_FEATURES:
        return dataset
    graph = dataset.graphs[0].clone()
    graph.x = torch.cat([graph.x, positions(graph.edge_index, graph.x.size(0))], dim=1)
    names = (*DEGREE_FEATURES, *(f"position_{i + 1}" for i in range(NUM_POSITIONS)))
    return replace(dataset, graphs=[graph], feature_names=names, num_positions=NUM_POSITIONS)


def positions(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Leading eigenvectors of the normalised adjacency matrix [N, 16], zero where it has fewer.

    By subspace iteration from a fixed start: linear in the edges, the same on every run.
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
        # Half a step towards itself keeps the eigenvalues positive, so that the largest win.
        basis, _ = np.linalg.qr(adjacency @ basis + basis)
    _, rotation = np.linalg.eigh(basis.T @ (adjacency @ basis))
    vectors = basis @ rotation[:, ::-1]
    heaviest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[heaviest, np.arange(size)])
    out[:, :size] = torch.from_numpy(vectors * num_nodes**0.5).float()
    return out
