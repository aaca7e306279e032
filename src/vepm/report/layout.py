"""Where to draw the nodes of a graph."""

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path
from scipy.spatial import cKDTree

from vepm.report.communities import adjacency_matrix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SMALL = 60
"""Up to so many nodes, distances on paper follow the lengths of shortest paths."""
STEPS = 300
NEAR, FAR = 8, 6


def layout(edge_index: Ints, num_nodes: int, start: Floats, seed: int = 0) -> Floats:
    """Positions [N, 2], about one unit between neighbours.

    Small graphs are laid out by Kamada and Kawai's method. In large ones there are springs along
    edges, repulsion from the nearest and from random nodes, and a pull to the middle. NetworkX's
    spring layout compares all pairs of nodes: ten times slower for 4,000 of them.

    Args:
        edge_index: Each edge once [2, E].
        num_nodes: Number of nodes.
        start: Values per node [N, D] from which to start, such as memberships.
        seed: Seed of the sampled forces.
    """
    if num_nodes <= SMALL:
        return _by_path_lengths(edge_index, num_nodes)
    random = np.random.default_rng(seed)
    position = _project(start, num_nodes, random)
    source, target = np.hstack([edge_index, edge_index[::-1]])
    degree = np.maximum(np.bincount(source, minlength=num_nodes), 1)
    stiffness = 0.8 / np.sqrt(np.minimum(degree[source], degree[target]))[:, None]
    for step in range(STEPS):
        spring = position[target] - position[source]
        length = np.linalg.norm(spring, axis=1, keepdims=True)
        move = _scatter(source, spring * np.minimum(length, 4) * stiffness, num_nodes)
        move += _repulsion(position, random) - _gravity(position)
        speed = np.linalg.norm(move, axis=1, keepdims=True)
        heat = np.sqrt(num_nodes) * 0.05 * (1 - step / STEPS) + 0.02
        position = position + move / np.maximum(speed, 1e-9) * np.minimum(speed, heat)
    return position - position.mean(axis=0)


def _by_path_lengths(edge_index: Ints, num_nodes: int) -> Floats:
    graph = adjacency_matrix(edge_index, num_nodes)
    length = shortest_path(graph, directed=False, unweighted=True)
    known = np.isfinite(length)
    length[~known] = length[known].max() + 2
    distances = {node: dict(enumerate(row)) for node, row in enumerate(length.tolist())}
    found = nx.kamada_kawai_layout(nx.empty_graph(num_nodes), dist=distances)
    position = np.array([found[node] for node in range(num_nodes)])
    gap = np.linalg.norm(position[edge_index[0]] - position[edge_index[1]], axis=1)
    return position / (gap.mean() if len(gap) else 0.5)


def _gravity(position: Floats) -> Floats:
    """A pull to the middle that grows outwards, so that long branches curl up."""
    slope = np.linalg.norm(position, axis=1, keepdims=True) / np.sqrt(len(position))
    return 0.35 * position * np.minimum(slope, 1.5)


def _project(start: Floats, size: int, random: np.random.Generator) -> Floats:
    """The two main directions of the starting values, spread over a disc of unit density."""
    scaled = start / (np.abs(start).max() or 1.0)
    centred = scaled - scaled.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    planar = centred @ axes[:, -2:]
    if planar.shape[1] < 2:
        planar = np.hstack([planar, np.zeros((size, 2 - planar.shape[1]))])
    planar = planar / max(float(planar.std()), 1e-9) * np.sqrt(size) / 3
    spread: Floats = planar + random.normal(scale=1.0, size=planar.shape)
    return spread


def _repulsion(position: Floats, random: np.random.Generator) -> Floats:
    size = len(position)
    near = cKDTree(position).query(position, k=range(2, min(NEAR + 1, size) + 1))[1]
    far = random.integers(size, size=(size, FAR))
    return _push(position, np.asarray(near), 1.5) + _push(position, far, 0.25 * size / FAR)


def _push(position: Floats, others: Ints, strength: float) -> Floats:
    gap = position[:, None] - position[others]
    pushed: Floats = strength * (gap / (np.square(gap).sum(2, keepdims=True) + 0.05)).sum(1)
    return pushed


def _scatter(index: Ints, values: Floats, size: int) -> Floats:
    return np.stack([np.bincount(index, values[:, axis], size) for axis in (0, 1)], axis=1)
