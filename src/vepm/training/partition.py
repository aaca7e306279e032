"""Cut a graph into clusters of about equal size with few edges between them, in linear time."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import reverse_cuthill_mckee

Ints = NDArray[np.int32]

ROUNDS = 30
LOOKED_AT = 8
"""Neighbours drawn for each node in a round, whose most frequent cluster it would rather be in."""
SLACK = 1.1
"""Largest size of a cluster, relative to the mean."""


def cluster_nodes(pointer: NDArray[np.int64], columns: Ints, count: int, seed: int = 0) -> Ints:
    """Number of each node's cluster [N].

    Nodes are put in an order in which neighbours stand close together (Cuthill and McKee), and
    that is cut into equal pieces. Then nodes move to the cluster of most of their neighbours,
    judged by a few drawn at random, as long as there is room; a few rounds of that find
    communities where there are any. All of it takes O(N + E).

    Args:
        pointer: Where each node's neighbours begin [N + 1].
        columns: The neighbours, node by node [E]; both directions of every edge.
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
    """The most frequent cluster among a few neighbours of each node, its own where they tie."""
    degree = np.diff(pointer)
    start = pointer[:-1]
    best = cluster.copy()
    seen = np.empty((LOOKED_AT, len(cluster)), np.int32)
    for row in seen:
        place = start + (random.random(len(cluster), np.float32) * degree).astype(np.int64)
        # Rounding may reach the next node's first neighbour, and the last has none after it.
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
    """Let nodes go where they want to be, in random order, as long as sizes stay in limits."""
    smallest, largest = limits
    movers = np.flatnonzero(wanted != cluster)
    # Half at a time: two neighbours that swap places are no better off than before.
    movers = random.permutation(movers)[: (len(movers) + 1) // 2]
    size = np.bincount(cluster, minlength=count)
    movers = _first(movers, cluster[movers], size - smallest)
    movers = _first(movers, wanted[movers], largest - size)
    cluster[movers] = wanted[movers]


def _first(nodes: NDArray[np.int64], group: Ints, room: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first so many nodes of each group."""
    order = np.argsort(group, kind="stable")
    count = np.bincount(group, minlength=len(room))
    place = np.arange(len(nodes)) - (np.cumsum(count) - count)[group[order]]
    return nodes[np.sort(order[place < room[group[order]]])]
