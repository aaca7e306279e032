"""The sum of all affiliations of a large graph, kept up to date by batches of its clusters."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vepm.training.ranks import Team


class RunningTotals:
    """Each cluster's last sum of posterior means; together they are the sum over the graph.

    Args:
        sizes: Nodes of each cluster [P].
        num_communities: Number of communities C.
        team: The processes that train together, which all get the same sums.
        device: Where batches are computed.
    """

    def __init__(
        self, sizes: Tensor, num_communities: int, team: Team, device: torch.device | str = "cpu"
    ) -> None:
        self.sizes, self.team = sizes.to(device, torch.double), team
        self.table = torch.zeros(
            sizes.numel(), num_communities + 1, dtype=torch.double, device=device
        )
        """The sums [P, C], and in the last column whether they are known."""

    @torch.no_grad()
    def renew(self, clusters: Tensor, member: Tensor, mean: Tensor) -> Tensor:
        """Take in the means of a batch [n, C] and give the total [C].

        Clusters not met yet, in the first epoch, are taken to be like those that were.

        Args:
            clusters: Numbers of the batch's clusters [q].
            member: Place of each node's cluster among them [n].
            mean: Posterior means of the nodes [n, C].
        """
        fresh = torch.zeros_like(self.table)
        sums = fresh.new_zeros(clusters.numel(), mean.size(1))
        fresh[clusters, :-1] = sums.index_add_(0, member, mean.double())
        fresh[clusters, -1] = 1
        self.team.sum(fresh)
        met = fresh[:, -1] > 0
        self.table[met] = fresh[met]
        known = self.sizes @ self.table[:, -1]
        return (self.table[:, :-1].sum(0) * (self.sizes.sum() / known)).to(mean.dtype)


@dataclass(frozen=True, eq=False)
class Part:
    """Where a batch of clusters stands in the graph it is cut from."""

    totals: RunningTotals
    """What is known of the whole graph."""
    clusters: Tensor
    """Numbers of the clusters [q]."""
    member: Tensor
    """Place of each node's cluster among them [n]."""
    edge_weight: Tensor
    """One over the chance that a batch with one end of an edge holds the other [e]."""
    num_nodes: int
    """Nodes of the whole graph."""
    num_edges: int
    """Undirected edges of the whole graph."""

    def total(self, mean: Tensor) -> Tensor:
        """Sum of the posterior means of all nodes [C], those of the batch [n, C] brought in."""
        return self.totals.renew(self.clusters, self.member, mean)
