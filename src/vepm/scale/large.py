"""One graph too large to train on at once, which stays in main memory and is read in parts.

Its parts for training are clusters: groups of nodes of about equal size with few edges between
them, found in linear time.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor
from torch_geometric.data import Data

from vepm.errors import InputError
from vepm.kernels.features import Features
from vepm.kernels.patterns import index_type
from vepm.nn import compact
from vepm.scale.batches import ragged

Ints = NDArray[np.int32]

ROUNDS = 30
SAMPLED = 8  # neighbours sampled for each node in a round, whose most frequent cluster it prefers
SLACK = 1.1  # largest size of a cluster, relative to the mean


class LargeGraph:
    """A graph in main memory, whose parts are moved to the device one at a time."""

    def __init__(self, graph: Data, device: torch.device | str = "cpu") -> None:
        if "edge_weight" in graph or graph.get("directed"):
            raise InputError(
                "a graph with weights or directions is trained at once: leave out batch_size "
                "(--batch-nodes)"
            )
        self.x, self.y = graph.x, graph.y
        self.device = torch.device(device)
        self.num_nodes = int(graph.x.size(0))
        source, target = graph.edge_index
        self.columns = source.to(index_type(self.num_nodes))
        """The neighbours of each node in turn [E]."""
        self.num_edges = self.columns.numel()
        self.degree = torch.bincount(target, minlength=self.num_nodes)
        self.pointer = torch.nn.functional.pad(self.degree.cumsum(0), (1, 0))
        """Offset of each node's neighbours [N + 1]."""
        self._index = torch.full((self.num_nodes,), -1, dtype=self.columns.dtype)

    def features(self, nodes: Tensor) -> Features:
        """Features of some nodes, on the device."""
        if self.x.layout == torch.sparse_coo:
            return compact(self.x.index_select(0, nodes).coalesce().to(self.device))
        return compact(self.x[nodes].to(self.device))

    def edges_into(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Index of the target among the nodes, and the source, of every edge into them."""
        count = self.degree[nodes]
        place = torch.arange(nodes.numel()).repeat_interleave(count)
        return place, self.columns[ragged(self.pointer[nodes], count)]

    def inside(self, nodes: Tensor) -> Tensor:
        """Edges [2, e] between the nodes, relabelled in their order."""
        target, source = self.edges_into(nodes)
        local = self._relabelled(nodes)[source]
        self._index[nodes] = -1
        kept = local >= 0
        return torch.stack([local[kept].long(), target[kept]])

    def around(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes followed by their other neighbours, and all edges into the nodes."""
        target, source = self.edges_into(nodes)
        outside = torch.zeros(self.num_nodes, dtype=torch.bool)
        outside[source] = True
        outside[nodes] = False
        everyone = torch.cat([nodes, outside.nonzero().flatten()])
        edges = torch.stack([self._relabelled(everyone)[source].long(), target])
        self._index[everyone] = -1
        return everyone, edges

    def _relabelled(self, nodes: Tensor) -> Tensor:
        self._index[nodes] = torch.arange(nodes.numel(), dtype=self._index.dtype)
        return self._index


def cluster_nodes(pointer: NDArray[np.int64], columns: Ints, count: int, seed: int = 0) -> Ints:
    """Index of each node's cluster [N].

    The nodes are ordered by reverse Cuthill-McKee, which places neighbours close together, and the
    order is cut into equal pieces. Then nodes move to the cluster of most of their neighbours,
    estimated from a random sample, within the size limits; a few rounds of that find communities
    where there are any. It takes O(N + E). The graph is given as CSR, with both directions of
    every edge.

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
