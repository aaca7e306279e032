"""Divide a graph into clusters of about equal size with few edges between them, in linear time."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import reverse_cuthill_mckee

Ints = NDArray[np.int32]

ROUNDS = 30
SAMPLED = 8
"""Neighbours sampled for each node in a round, whose most frequent cluster it prefers."""
SLACK = 1.1
"""Largest size of a cluster, relative to the mean."""


def cluster_nodes(pointer: NDArray[np.int64], columns: Ints, count: int, seed: int = 0) -> Ints:
    """Index of each node's cluster [N].

    The nodes are ordered by reverse Cuthill-McKee, which places neighbours close together, and the
    order is cut into equal pieces. Then nodes move to the cluster of most of their neighbours,
    estimated from a random sample, within the size limits; a few rounds of that find communities
    where there are any. It takes O(N + E).

    Args:
        pointer: Offset of each node's neighbours [N + 1].
        columns: The neighbours of each node in turn [E]; both directions of every edge.
        count: Number of clusters; fewer come out where there are fewer nodes.
        seed: Seed of the draws.

    Example:
        >>> pointer, columns = np.array([0, 1, 2, 3, 4]), np.array([1, 0, 3, 2], dtype=np.int32)
        >>> cluster_nodes(pointer, columns, 2).tolist()
        [1, 1, 0, 0]
    """
    nodes = len(pointer) - 1
    count = max(1, min(count, nodes))
    matrix = csr_matrix((np.ones(len(columns), np.int8), columns, pointer), (nodes, nodes))
    order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    cluster = np.empty(nodes, np.int32)
    cluster[order] = np.arange(nodes, dtype=np.int64) * count // max(nodes, 1)
    if count > 1 and len(columns):
        limits = max(1, nodes // (2 * count)), int(np.ceil(SLACK * nodes / count))
        random = np.random.default_rng(seed)
        for _ in range(ROUNDS):
            _move(cluster, _preferred(cluster, pointer, columns, random), count, limits, random)
    return cluster


def _preferred(
    cluster: Ints, pointer: NDArray[np.int64], columns: Ints, random: np.random.Generator
) -> Ints:
    """The most frequent cluster among sampled neighbours of each node, its own in a tie."""
    degree = np.diff(pointer)
    start = pointer[:-1]
    best = cluster.copy()
    seen = np.empty((SAMPLED, len(cluster)), np.int32)
    for row in seen:
        place = start + (random.random(len(cluster), np.float32) * degree).astype(np.int64)
        # Rounding may reach the next node's first neighbour.
        place = np.minimum(place, np.maximum(start + degree - 1, 0))
        row[:] = np.where(degree > 0, cluster[columns[place]], cluster)
    frequency = (seen == cluster).sum(0, dtype=np.int8)
    for row in seen:
        found = (seen == row).sum(0, dtype=np.int8)
        better = found > frequency
        best[better], frequency[better] = row[better], found[better]
    return best


def _move(
    cluster: Ints, wanted: Ints, count: int, limits: tuple[int, int], random: np.random.Generator
) -> None:
    """Move nodes to their preferred clusters, in random order, within the size limits."""
    smallest, largest = limits
    movers = np.flatnonzero(wanted != cluster)
    # Half at a time: two neighbours that swap clusters gain nothing.
    movers = random.permutation(movers)[: (len(movers) + 1) // 2]
    size = np.bincount(cluster, minlength=count)
    movers = _first(movers, cluster[movers], size - smallest)
    movers = _first(movers, wanted[movers], largest - size)
    cluster[movers] = wanted[movers]


def _first(nodes: NDArray[np.int64], group: Ints, room: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first ``room`` nodes of each group."""
    order = np.argsort(group, kind="stable")
    count = np.bincount(group, minlength=len(room))
    place = np.arange(len(nodes)) - (np.cumsum(count) - count)[group[order]]
    return nodes[np.sort(order[place < room[group[order]]])]
