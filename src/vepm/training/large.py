"""One graph too large to train on at once: kept whole, read in parts."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.errors import InputError
from vepm.kernels.features import Features
from vepm.kernels.patterns import index_type
from vepm.nn import Adjacency, compact
from vepm.training.batches import GraphBatch, Whole
from vepm.training.config import Config
from vepm.training.partition import cluster_nodes
from vepm.training.ranks import Team
from vepm.training.totals import Part, RunningTotals

CLUSTERS_PER_BATCH = 8
"""Clusters, drawn anew in every epoch, that make up a step."""


class LargeGraph:
    """A graph in main memory, of which parts go to the device one at a time.

    Args:
        graph: Features, edges in canonical order, labels; nothing of it is copied but the edges,
            in half the space.
        device: Where parts are computed on.
    """

    def __init__(self, graph: Data, device: torch.device | str = "cpu") -> None:
        self.x, self.y = graph.x, graph.y
        self.device = torch.device(device)
        self.num_nodes = int(graph.x.size(0))
        source, target = graph.edge_index
        self.columns = source.to(index_type(self.num_nodes))
        """The neighbours, node by node [E]."""
        self.degree = torch.bincount(target, minlength=self.num_nodes)
        self.pointer = torch.nn.functional.pad(self.degree.cumsum(0), (1, 0))
        """Where each node's neighbours begin [N + 1]."""
        self._place = torch.full((self.num_nodes,), -1, dtype=self.columns.dtype)

    @property
    def num_edges(self) -> int:
        """Directed edges."""
        return self.columns.numel()

    def features(self, nodes: Tensor) -> Features:
        """Features of some nodes, on the device."""
        if self.x.layout == torch.sparse_coo:
            return compact(self.x.index_select(0, nodes).coalesce().to(self.device))
        return compact(self.x[nodes].to(self.device))

    def edges_into(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Place of the target among the nodes, and the source, of every edge that ends in them."""
        count = self.degree[nodes]
        place = torch.arange(nodes.numel()).repeat_interleave(count)
        shift = (self.pointer[:-1][nodes] - (count.cumsum(0) - count)).repeat_interleave(count)
        return place, self.columns[shift.add_(torch.arange(shift.numel()))]

    def inside(self, nodes: Tensor) -> Tensor:
        """Edges [2, e] that run between the nodes, which are renumbered in their order."""
        target, source = self.edges_into(nodes)
        local = self._numbered(nodes)[source]
        self._place[nodes] = -1
        kept = local >= 0
        return torch.stack([local[kept].long(), target[kept]])

    def around(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes followed by their other neighbours, and all edges that end in the nodes."""
        target, source = self.edges_into(nodes)
        outside = torch.zeros(self.num_nodes, dtype=torch.bool)
        outside[source] = True
        outside[nodes] = False
        everyone = torch.cat([nodes, outside.nonzero().flatten()])
        edges = torch.stack([self._numbered(everyone)[source].long(), target])
        self._place[everyone] = -1
        return everyone, edges

    def _numbered(self, nodes: Tensor) -> Tensor:
        self._place[nodes] = torch.arange(nodes.numel(), dtype=self._place.dtype)
        return self._place


class Clusters:
    """A large graph cut into clusters, some of which are joined in every step.

    Args:
        graph: The graph.
        config: Its settings of batches.
        train: Numbers of the labelled nodes to learn from.
        team: The processes that share the steps.
        seed: Seed of the cut.
        joined: Clusters that make up a step.
    """

    def __init__(
        self,
        graph: LargeGraph,
        config: Config,
        train: Tensor,
        team: Team,
        seed: int,
        joined: int = CLUSTERS_PER_BATCH,
    ) -> None:
        check_settings(config)
        self.graph, self.team = graph, team
        wanted = config.training.batch_size
        count = max(2 * team.size, -(-graph.num_nodes * joined // wanted))
        cluster = cluster_nodes(graph.pointer.numpy(), graph.columns.numpy(), count, seed)
        self.cluster = torch.from_numpy(cluster)
        self.sizes = torch.bincount(self.cluster)
        self.count = self.sizes.numel()
        self.members = torch.argsort(self.cluster, stable=True).split(self.sizes.tolist())
        self.labelled = torch.zeros(graph.num_nodes, dtype=torch.bool)
        self.labelled[train] = True
        self.num_labelled = train.numel()
        self.steps = -(-self.count // (joined * team.size))
        if self.steps * team.size > self.count:
            raise InputError(
                f"{self.count} clusters cannot keep {team.size} processes busy; "
                "give fewer processes or a smaller batch_size"
            )
        self.totals = RunningTotals(self.sizes, config.model.num_communities, team, graph.device)

    def epoch(self) -> Iterator[tuple[GraphBatch, Tensor]]:
        """This process's batches of one epoch, with the labelled rows of each.

        Every cluster is in one batch; which ones meet is drawn anew in every epoch, from torch's
        random numbers, which must be the same in all processes.
        """
        groups = torch.randperm(self.count).tensor_split(self.steps * self.team.size)
        weight = _weight_of_cut_edges(groups)
        self.team.part_ways()
        for group in groups[self.team.rank :: self.team.size]:
            yield self.join(group, weight)

    def join(self, group: Tensor, cut_weight: float) -> tuple[GraphBatch, Tensor]:
        """The graph on some clusters, and its labelled rows."""
        graph = self.graph
        nodes = torch.cat([self.members[number] for number in group.tolist()])
        member = torch.arange(group.numel()).repeat_interleave(self.sizes[group])
        edge_index = graph.inside(nodes)
        cut = member[edge_index[0]] != member[edge_index[1]]
        weight = torch.where(cut, cut_weight, 1.0).to(graph.x.dtype)
        device = graph.device
        part = Part(
            totals=self.totals,
            clusters=group.to(device),
            member=member.to(device),
            edge_weight=weight.to(device),
            num_nodes=graph.num_nodes,
            num_edges=graph.num_edges // 2,
        )
        whole = Whole(
            nodes=graph.num_nodes / self.steps,
            labels=max(self.num_labelled, 1) / self.steps,
            graphs=1 / self.steps,
        )
        batch = GraphBatch(
            x=graph.features(nodes),
            edges=Adjacency(edge_index.to(device), nodes.numel()),
            y=graph.y[nodes].to(device),
            whole=whole,
            part=part,
        )
        return batch, self.labelled[nodes].nonzero().flatten().to(device)


def check_settings(config: Config) -> None:
    """Refuse settings that look at the whole graph in every step."""
    if config.training.likelihood == "subsampled":
        raise InputError(
            "settings: training by clusters needs the exact likelihood; use balanced or summed"
        )
    if config.model.inputs == "random":
        raise InputError(
            "settings: random inputs belong to the nodes of a whole graph, and this one is trained "
            "by clusters; use other inputs"
        )
    check_partition(config.model.partition)


def check_partition(scheme: str) -> None:
    """Refuse a split of the edges that depends on how the whole graph is numbered."""
    if scheme == "random":
        raise InputError(
            "settings: a random partition depends on the edges of the whole graph, and this one is "
            "trained by clusters; use learned or even"
        )


def _weight_of_cut_edges(groups: tuple[Tensor, ...]) -> float:
    """One over the chance that two given clusters are in the same group."""
    count = sum(group.numel() for group in groups)
    together = sum(group.numel() * (group.numel() - 1) for group in groups)
    return count * (count - 1) / together if together else 0.0
