"""Where to draw the nodes of a graph."""

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SMALL = 60
STEPS = 300
NEAR, FAR = 8, 6


def layout(edge_index: Ints, num_nodes: int, start: Floats, seed: int = 0) -> Floats:
    """Positions [N, 2], about one unit between neighbours.

    Each connected component is laid out by itself, small ones by Kamada and Kawai's method and
    large ones by sampled forces; components are then packed in rows.

    Args:
        edge_index: Edges [2, E].
        num_nodes: Number of nodes.
        start: Values per node [N, D] from which large components start, such as memberships.
        seed: Seed of the sampled forces.
    """
    graph = nx.empty_graph(num_nodes)
    graph.add_edges_from(edge_index.T.tolist())
    groups = [np.array(sorted(component)) for component in nx.connected_components(graph)]
    positions = np.zeros((num_nodes, 2))
    for group in groups:
        part = nx.convert_node_labels_to_integers(graph.subgraph(group), ordering="sorted")
        positions[group] = (
            _path_lengths(part) if len(part) <= SMALL else _forces(part, start[group], seed)
        )
    return _pack(positions, groups)


def _path_lengths(graph: "nx.Graph[int]") -> Floats:
    """Positions whose distances come close to the lengths of shortest paths."""
    if len(graph) <= 2:
        return np.column_stack([np.arange(len(graph)), np.zeros(len(graph))])
    positions = np.array(list(nx.kamada_kawai_layout(graph, weight=None).values()))
    source, target = np.array(graph.edges).T
    length = np.linalg.norm(positions[source] - positions[target], axis=1)
    return positions / length.mean()


def _forces(graph: "nx.Graph[int]", start: Floats, seed: int) -> Floats:
    """Springs along edges, repulsion from the nearest and from random nodes, a pull to the middle.

    NetworkX's spring layout compares all pairs of nodes: ten times slower for 4,000 of them.
    """
    random = np.random.default_rng(seed)
    size = len(graph)
    position = _project(start, size, random)
    edges = np.array(graph.edges).T
    source, target = np.hstack([edges, edges[::-1]])
    degree = np.maximum(np.bincount(source, minlength=size), 1)
    stiffness = 0.8 / np.sqrt(np.minimum(degree[source], degree[target]))[:, None]
    for step in range(STEPS):
        spring = position[target] - position[source]
        length = np.linalg.norm(spring, axis=1, keepdims=True)
        move = _scatter(source, spring * np.minimum(length, 4) * stiffness, size)
        move += _repulsion(position, random) - _gravity(position)
        speed = np.linalg.norm(move, axis=1, keepdims=True)
        heat = np.sqrt(size) * 0.05 * (1 - step / STEPS) + 0.02
        position = position + move / np.maximum(speed, 1e-9) * np.minimum(speed, heat)
    return position - position.mean(axis=0)


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
    """Set the components side by side in rows, the largest first."""
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
