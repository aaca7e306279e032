"""Communities without labels."""

from dataclasses import replace
from typing import Any, NamedTuple, Self

import torch
from sklearn.base import ClusterMixin

from vepm.estimators.base import Array, Estimator, RandomState
from vepm.nn import interactions, members
from vepm.tasks import TaskName
from vepm.training import Config, Progress
from vepm.training.fitting import NONE


class Memberships(NamedTuple):
    """Hard, soft and overlapping communities of the same nodes."""

    hard: Array
    """The metacommunity each node belongs to most [N]."""
    soft: Array
    """Share of each node's expected links in each metacommunity, rows summing to one [N, K]."""
    overlapping: Array
    """Whether a node is a member of a metacommunity [N, K]; none, one or several."""


class CommunityDetector(ClusterMixin, Estimator):  # type: ignore[misc]
    """Finds overlapping communities from edges and features alone.

    Args:
        graph: The graph whose nodes are given as X from then on, as in
            :class:`vepm.NodeClassifier`.
        preset: Named settings: ``"default"``, ``"tuned"``, ``"paper"`` or ``"released"``.
        num_communities: Number of communities.
        num_metacommunities: Number of groups of communities, which ``communities`` reports; one
            per community if only their number is given.
        config: Complete settings instead of a preset.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        random_state: Seed; None draws one for every fit, a NumPy ``RandomState`` gives the next.
        progress: Called after every epoch.
        settings: Any other setting of :class:`vepm.training.Config` by name, such as
            ``pretrain_epochs``.

    Example:
        >>> import networkx as nx
        >>> from vepm import CommunityDetector
        >>> club = nx.karate_club_graph()
        >>> found = CommunityDetector(num_communities=2).fit(club)
        >>> found.communities(club).overlapping.shape
        (34, 2)
    """

    _task: TaskName = "node"

    def __init__(
        self,
        *,
        graph: Any = None,
        preset: str = "default",
        num_communities: int | None = None,
        num_metacommunities: int | None = None,
        config: Config | None = None,
        device: str = "auto",
        random_state: RandomState = 0,
        progress: Progress | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            preset=preset,
            num_communities=num_communities,
            num_metacommunities=num_metacommunities,
            config=config,
            device=device,
            random_state=random_state,
            progress=progress,
            **settings,
        )
        self.graph = graph

    @staticmethod
    def _default_groups(config: Config, num_communities: int) -> int:
        return num_communities

    def fit(self, X: Any, y: None = None) -> Self:
        """Learn communities from the edges; labels, if there are any, are not looked at."""
        # A model that has seen no label has no classes, and must not pass for one that has.
        dataset = replace(self._read(X).dataset, num_classes=0, class_names=())
        self.fit_split(dataset, NONE, NONE)
        self.labels_ = self.communities(X).hard
        return self

    def predict(self, X: Any) -> Array:
        """The metacommunity each node belongs to most [N]."""
        return self.communities(X).hard

    def transform(self, X: Any) -> Array:
        """Mean affiliation of every node to every community [N, C]."""
        found = self.memberships(X)
        assert not isinstance(found, list)
        return found

    def communities(self, X: Any) -> Memberships:
        """Hard, soft and overlapping memberships in the metacommunities.

        Hard and soft go by a node's expected links through each metacommunity; a node is a
        member of every metacommunity in which two nodes like it would be joined at least as
        often as two nodes picked at random (:func:`vepm.nn.members`).
        """
        items = self._items(X)
        found = self._explain(items.dataset)
        model = self._model()
        with torch.no_grad():
            activation, grouping = model.activation, model.partitioner.grouping()
            links = interactions(found.memberships, activation, grouping)
            member = members(found.memberships, activation, grouping, found.edge_index)
        return Memberships(
            hard=items.of(links).argmax(1).cpu().numpy(),
            soft=items.of(links / links.sum(1, keepdim=True)).cpu().numpy(),
            overlapping=items.of(member).cpu().numpy(),
        )
