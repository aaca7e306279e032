"""Where to draw the nodes of a graph."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial import cKDTree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EXACT_SIZE = 250
STEPS = 300
NEAR, FAR = 8, 6


def layout(edge_index: Ints, num_nodes: int, start: Floats, seed: int = 0) -> Floats:
    """Positions [N, 2], about one unit between neighbours.

    Each connected part is laid out by itself, small ones by stress majorisation and large ones
    by sampled forces; parts are then packed in rows.

    Args:
        edge_index: Edges [2, E] in both directions.
        num_nodes: Number of nodes.
        start: Values per node [N, D] from which large parts start, such as memberships.
        seed: Seed of the sampled forces.
    """
    ones = np.ones(edge_index.shape[1])
    adjacency = csr_array((ones, (edge_index[0], edge_index[1])), shape=(num_nodes, num_nodes))
    count, part = connected_components(adjacency, directed=False)
    groups = np.split(np.argsort(part, kind="stable"), np.cumsum(np.bincount(part))[:-1])
    positions = np.zeros((num_nodes, 2))
    for group in groups if count else []:
        inside = adjacency[group][:, group]
        positions[group] = (
            _stress(inside) if len(group) <= EXACT_SIZE else _forces(inside, start[group], seed)
        )
    return _pack(positions, groups)


def _stress(adjacency: csr_array) -> Floats:
    """Positions whose distances come close to path lengths (stress majorisation)."""
    size = adjacency.shape[0]
    if size == 1:
        return np.zeros((1, 2))
    distance = shortest_path(adjacency, unweighted=True, directed=False)
    weight = np.divide(1.0, distance**2, out=np.zeros_like(distance), where=distance > 0)
    inverse = np.linalg.pinv(np.diag(weight.sum(axis=1)) - weight)
    position = _classical_scaling(distance)
    for _ in range(60):
        gap = np.linalg.norm(position[:, None] - position[None], axis=2)
        pull = np.divide(weight * distance, gap, out=np.zeros_like(gap), where=gap > 1e-9)
        position = inverse @ ((np.diag(pull.sum(axis=1)) - pull) @ position)
    return position


def _classical_scaling(distance: Floats) -> Floats:
    centre = np.eye(len(distance)) - 1 / len(distance)
    values, vectors = np.linalg.eigh(-0.5 * centre @ distance**2 @ centre)
    planar = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    # A path or a pair would otherwise never leave the line it starts on.
    wiggle = np.random.default_rng(0).normal(scale=0.05, size=planar.shape)
    settled: Floats = planar + wiggle
    return settled


def _forces(adjacency: csr_array, start: Floats, seed: int) -> Floats:
    """Springs along edges, repulsion from the nearest and from random nodes, in a round bowl."""
    random = np.random.default_rng(seed)
    size = adjacency.shape[0]
    position = _project(start, size, random)
    coo = adjacency.tocoo()
    source, target = coo.row.astype(np.int64), coo.col.astype(np.int64)
    degree = np.maximum(np.bincount(source, minlength=size), 1)
    stiffness = 0.8 / np.sqrt(np.minimum(degree[source], degree[target]))[:, None]
    for step in range(STEPS):
        spring = position[target] - position[source]
        length = np.linalg.norm(spring, axis=1, keepdims=True)
        move = _scatter(source, spring * np.minimum(length, 4) * stiffness, size)
        move += _repulsion(position, random) - _bowl(position)
        speed = np.linalg.norm(move, axis=1, keepdims=True)
        heat = np.sqrt(size) * 0.05 * (1 - step / STEPS) + 0.02
        position = position + move / np.maximum(speed, 1e-9) * np.minimum(speed, heat)
    return position - position.mean(axis=0)


def _bowl(position: Floats) -> Floats:
    """A pull to the middle that steepens outwards, so that long branches curl up."""
    slope = np.linalg.norm(position, axis=1, keepdims=True) / np.sqrt(len(position))
    return 0.35 * position * np.minimum(slope, 1.5)


def _project(start: Floats, size: int, random: np.random.Generator) -> Floats:
    """The two main directions of the starting values, spread over a disc of unit density."""
    centred = start - start.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    planar = centred @ axes[:, -2:]
    if planar.shape[1] < 2:
        planar = np.hstack([planar, np.zeros((size, 2 - planar.shape[1]))])
    planar = planar / max(float(planar.std()), 1e-9) * np.sqrt(size) / 3
    spread: Floats = planar + random.normal(scale=1.0, size=planar.shape)
    return spread


def _repulsion(position: Floats, random: np.random.Generator) -> Floats:
    size = len(position)
    near = np.asarray(cKDTree(position).query(position, k=NEAR + 1)[1])
    far = random.integers(size, size=(size, FAR))
    return _push(position, near[:, 1:], 1.5) + _push(position, far, 0.25 * size / FAR)


def _push(position: Floats, others: Ints, strength: float) -> Floats:
    gap = position[:, None] - position[others]
    pushed: Floats = strength * (gap / (np.square(gap).sum(2, keepdims=True) + 0.05)).sum(1)
    return pushed


def _scatter(index: Ints, values: Floats, size: int) -> Floats:
    return np.stack([np.bincount(index, values[:, axis], size) for axis in (0, 1)], axis=1)


def _pack(positions: Floats, groups: list[Ints]) -> Floats:
    """Set the parts side by side in rows, the largest first."""
    packed = positions.copy()
    order = sorted(range(len(groups)), key=lambda g: -len(groups[g]))
    boxes = {g: np.ptp(positions[groups[g]], axis=0) + 1.5 for g in order}
    area = sum(float(box.prod()) for box in boxes.values())
    widest = max((float(box[0]) for box in boxes.values()), default=0.0)
    dominated = bool(order) and float(boxes[order[0]].prod()) > area / 2
    limit = widest if dominated else max(1.4 * np.sqrt(area), widest)
    left, top, height = 0.0, 0.0, 0.0
    for g in order:
        width, tall = boxes[g]
        if left and left + width > limit:
            left, top, height = 0.0, top + height, 0.0
        corner = positions[groups[g]].min(axis=0)
        packed[groups[g]] = positions[groups[g]] - corner + (left, top)
        left, height = left + width, max(height, float(tall))
    return packed - packed.mean(axis=0)
