"""Training on a large graph by clusters: batches whose loss is that of the graph on average."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vepm.errors import InputError
from vepm.nn import Adjacency
from vepm.objective import Counts, partial_edge_log_likelihood
from vepm.scale.batches import GraphBatch
from vepm.scale.ddp import ProcessGroup
from vepm.scale.large import LargeGraph, cluster_nodes

CLUSTERS_PER_BATCH = 8  # clusters, drawn anew in every epoch, that make up a step


class RunningTotals:
    """The latest sum of posterior means of each cluster, which add up to that of the graph."""

    def __init__(self, sizes: Tensor, num_communities: int, group: ProcessGroup) -> None:
        self.sizes, self.group = sizes.double(), group
        self.table = self.sizes.new_zeros(sizes.numel(), num_communities + 1)
        """The sums [P, C], and in the last column whether they are known."""

    @torch.no_grad()
    def renew(self, clusters: Tensor, member: Tensor, mean: Tensor) -> Tensor:
        """Update the sums with the means of a batch [n, C] and return the total [C].

        In the first epoch, clusters not seen yet are taken to be like those that were.
        """
        fresh = torch.zeros_like(self.table)
        sums = fresh.new_zeros(clusters.numel(), mean.size(1))
        fresh[clusters, :-1] = sums.index_add_(0, member, mean.double())
        fresh[clusters, -1] = 1
        self.group.sum(fresh)
        seen = fresh[:, -1] > 0
        self.table[seen] = fresh[seen]
        known = self.sizes @ self.table[:, -1]
        return (self.table[:, :-1].sum(0) * (self.sizes.sum() / known)).to(mean.dtype)


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterBatch(GraphBatch):
    """A subgraph of some clusters of a larger graph."""

    totals: RunningTotals  # the sum of affiliations over the whole graph
    clusters: Tensor  # indices of the clusters [q]
    member: Tensor  # index of each node's cluster among them [n]
    edge_weight: Tensor
    """One over the probability that a batch with one end of an edge holds the other [e]."""
    num_nodes: int  # nodes of the whole graph
    num_edges: int  # undirected edges of the whole graph

    def edge_log_likelihood(
        self, z: Tensor, mean: Tensor, activation: Tensor, likelihood: str, directed: bool = False
    ) -> Tensor:
        """The batch's part of the log-likelihood of all pairs of the whole graph."""
        return partial_edge_log_likelihood(
            z,
            activation,
            self.edges,
            mean=mean,
            edge_weight=self.edge_weight,
            total=self.totals.renew(self.clusters, self.member, mean),
            num_nodes=self.num_nodes,
            num_edges=self.num_edges,
            balanced=likelihood != "summed",
        )


class Clusters:
    """A large graph divided into clusters, some of which are joined in every step."""

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
        cluster = cluster_nodes(graph.pointer.numpy(), graph.columns.numpy(), count, seed)
        self.cluster = torch.from_numpy(cluster)
        self.sizes = torch.bincount(self.cluster)
        self.count = self.sizes.numel()
        self.members = torch.argsort(self.cluster, stable=True).split(self.sizes.tolist())
        self.labelled = torch.zeros(graph.num_nodes, dtype=torch.bool)
        self.labelled[train] = True
        self.num_labelled = train.numel()
        self.steps = -(-self.count // (joined * group.size))
        if self.steps * group.size > self.count:
            raise InputError(
                f"{self.count} clusters are too few for {group.size} processes; "
                "use fewer processes or a smaller batch_size"
            )
        self.totals = RunningTotals(self.sizes.to(graph.device), num_communities, group)

    def epoch(self) -> Iterator[tuple[GraphBatch, Tensor]]:
        """This process's batches of one epoch, with the labelled rows of each.

        Every cluster is in one batch; which ones are joined is drawn anew in every epoch, from
        torch's random numbers, which must be the same in all processes.
        """
        batches = torch.randperm(self.count).tensor_split(self.steps * self.group.size)
        weight = _weight_of_cut_edges(batches)
        self.group.diverge()
        for clusters in batches[self.group.rank :: self.group.size]:
            yield self.join(clusters, weight)

    def join(self, clusters: Tensor, cut_weight: float) -> tuple[GraphBatch, Tensor]:
        """The subgraph of some clusters, and its labelled rows."""
        graph, device = self.graph, self.graph.device
        nodes = torch.cat([self.members[index] for index in clusters.tolist()])
        member = torch.arange(clusters.numel()).repeat_interleave(self.sizes[clusters])
        edge_index = graph.inside(nodes)
        cut = member[edge_index[0]] != member[edge_index[1]]
        weight = torch.where(cut, cut_weight, 1.0).to(graph.x.dtype)
        batch = ClusterBatch(
            x=graph.features(nodes),
            edges=Adjacency(edge_index.to(device), nodes.numel()),
            y=graph.y[nodes].to(device),
            counts=Counts(
                nodes=graph.num_nodes / self.steps,
                labels=max(self.num_labelled, 1) / self.steps,
                graphs=1 / self.steps,
            ),
            totals=self.totals,
            clusters=clusters.to(device),
            member=member.to(device),
            edge_weight=weight.to(device),
            num_nodes=graph.num_nodes,
            num_edges=graph.num_edges // 2,
        )
        return batch, self.labelled[nodes].nonzero().flatten().to(device)


def _weight_of_cut_edges(batches: tuple[Tensor, ...]) -> float:
    """One over the probability that two given clusters are in the same batch."""
    count = sum(batch.numel() for batch in batches)
    together = sum(batch.numel() * (batch.numel() - 1) for batch in batches)
    return count * (count - 1) / together if together else 0.0
