"""One graph too large to train on at once: it stays in main memory and is trained by clusters."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor
from torch_geometric.data import Data

from vepm.errors import InputError
from vepm.kernels.features import Features
from vepm.kernels.patterns import index_type, ragged
from vepm.nn import Adjacency, compact
from vepm.objective import Counts, partial_edge_log_likelihood
from vepm.scale.batches import GraphBatch
from vepm.scale.ddp import ProcessGroup

Ints = NDArray[np.int32]

ROUNDS = 30
SAMPLED = 8  # neighbours sampled for each node in a round, whose most frequent cluster it prefers
SLACK = 1.1  # largest size of a cluster, relative to the mean
CLUSTERS_PER_BATCH = 8  # clusters, drawn anew in every epoch, that make up a step


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
        rows = self.x.index_select(0, nodes)
        rows = rows.coalesce() if rows.layout == torch.sparse_coo else rows
        return compact(rows.to(self.device))

    def edges_into(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Index of the target among the nodes, and the source, of every edge into them."""
        count = self.degree[nodes]
        place = torch.arange(nodes.numel()).repeat_interleave(count)
        return place, self.columns[ragged(self.pointer[nodes], count)]

    def inside(self, nodes: Tensor) -> Tensor:
        """Edges [2, e] between the nodes, relabelled in their order."""
        target, source = self.edges_into(nodes)
        local = self._place_among(nodes, source)
        kept = local >= 0
        return torch.stack([local[kept], target[kept]])

    def around(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes followed by their other neighbours, and all edges into the nodes."""
        target, source = self.edges_into(nodes)
        outside = torch.zeros(self.num_nodes, dtype=torch.bool)
        outside[source] = True
        outside[nodes] = False
        everyone = torch.cat([nodes, outside.nonzero().flatten()])
        return everyone, torch.stack([self._place_among(everyone, source), target])

    def _place_among(self, nodes: Tensor, wanted: Tensor) -> Tensor:
        """Index of each of the wanted nodes among the nodes; -1 if it is not one of them."""
        self._index[nodes] = torch.arange(nodes.numel(), dtype=self._index.dtype)
        found = self._index[wanted].long()
        self._index[nodes] = -1
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterBatch(GraphBatch):
    """A subgraph of some clusters of a larger graph."""

    whole: "Clusters"
    cluster: Tensor  # index of each node's cluster [n]
    edge_weight: Tensor
    """Inverse of the probability that a batch with one end of an edge holds the other [e]."""

    def edge_log_likelihood(
        self, z: Tensor, mean: Tensor, activation: Tensor, likelihood: str, directed: bool = False
    ) -> Tensor:
        """The batch's part of the log-likelihood of all pairs of the whole graph."""
        given = z, activation, self.edges, mean, self.edge_weight
        total = self.whole.renew_totals(self.cluster, mean)
        size = self.whole.graph.num_nodes, self.whole.graph.num_edges // 2
        return partial_edge_log_likelihood(*given, total, size, likelihood != "summed")


class Clusters:
    """A large graph in clusters, some joined in each step; on average the loss is that of all."""

    def __init__(
        self,
        graph: LargeGraph,
        train: Tensor,
        num_communities: int,
        batch_size: int,
        *,
        group: ProcessGroup,
        seed: int,
        joined: int = CLUSTERS_PER_BATCH,
    ) -> None:
        self.graph, self.group = graph, group
        count = max(2 * group.size, -(-graph.num_nodes * joined // batch_size))
        found = cluster_nodes(graph.pointer.numpy(), graph.columns.numpy(), count, seed)
        cluster = torch.from_numpy(found)
        self.sizes = torch.bincount(cluster)
        self.count = self.sizes.numel()
        self.members = torch.argsort(cluster, stable=True).split(self.sizes.tolist())
        self.labelled = torch.zeros(graph.num_nodes, dtype=torch.bool)
        self.labelled[train] = True
        self.steps = -(-self.count // (joined * group.size))
        if self.steps * group.size > self.count:
            raise InputError(
                f"{self.count} clusters are too few for {group.size} processes; "
                "use fewer processes or a smaller batch_size"
            )
        of_step = graph.num_nodes, max(train.numel(), 1), 1
        self.counts = Counts(*(count / self.steps for count in of_step))
        self.totals = torch.zeros(self.count, num_communities + 1, device=graph.device).double()
        """The latest sum of posterior means of each cluster [P, C], which add up to that of the
        graph; in the last column whether they are known."""

    @torch.no_grad()
    def renew_totals(self, cluster: Tensor, mean: Tensor) -> Tensor:
        """Update the sums with means [n, C] of nodes of these clusters; returns the total [C]."""
        fresh = torch.zeros_like(self.totals)
        fresh[:, :-1].index_add_(0, cluster, mean.double())
        fresh[cluster, -1] = 1
        self.group.sum(fresh)
        seen = fresh[:, -1] > 0
        self.totals[seen] = fresh[seen]
        sizes = self.sizes.to(fresh)
        # In the first epoch, clusters not seen yet are taken to be like those that were.
        known = sizes @ self.totals[:, -1]
        return (self.totals[:, :-1].sum(0) * (sizes.sum() / known)).to(mean.dtype)

    def epoch(self) -> Iterator[tuple[GraphBatch, Tensor]]:
        """This process's batches of one epoch, in each some clusters, and their labelled rows."""
        # Drawn anew in every epoch; torch's random numbers are the same in all processes here.
        batches = torch.randperm(self.count).tensor_split(self.steps * self.group.size)
        weight = weight_of_cut_edges(batches)
        self.group.diverge()
        for clusters in batches[self.group.rank :: self.group.size]:
            yield self.join(clusters, weight)

    def join(self, clusters: Tensor, cut_weight: float) -> tuple[GraphBatch, Tensor]:
        """The subgraph of some clusters, and its labelled rows."""
        graph, device = self.graph, self.graph.device
        nodes = torch.cat([self.members[index] for index in clusters.tolist()])
        cluster = clusters.repeat_interleave(self.sizes[clusters])
        edge_index = graph.inside(nodes)
        cut = cluster[edge_index[0]] != cluster[edge_index[1]]
        batch = ClusterBatch(
            x=graph.features(nodes),
            edges=Adjacency(edge_index.to(device), nodes.numel()),
            y=graph.y[nodes].to(device),
            counts=self.counts,
            whole=self,
            cluster=cluster.to(device),
            edge_weight=torch.where(cut, cut_weight, 1.0).to(device, graph.x.dtype),
        )
        return batch, self.labelled[nodes].nonzero().flatten().to(device)


def weight_of_cut_edges(batches: tuple[Tensor, ...]) -> float:
    """Inverse of the probability that two given clusters are in the same batch."""
    count = sum(batch.numel() for batch in batches)
    together = sum(batch.numel() * (batch.numel() - 1) for batch in batches)
    return count * (count - 1) / together if together else 0.0


def cluster_nodes(pointer: NDArray[np.int64], columns: Ints, count: int, seed: int = 0) -> Ints:
    """Index of each node's cluster [N], of about equal size with few edges cut, in O(N + E).

    The graph is given as CSR. The order of reverse Cuthill-McKee, which places neighbours close
    together, is cut into equal pieces; then nodes move, within limits of size, to the cluster of
    most of their neighbours in a random sample.
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
