"""Communities without labels."""

from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import ClusterMixin

from vepm.data import Dataset
from vepm.errors import InputError
from vepm.estimators.base import Estimator, RandomState, Rows
from vepm.estimators.inputs import Array, node_names, unlabelled
from vepm.nn import interactions, members
from vepm.training import Config, Explanation, Progress, explain, fit
from vepm.training.fitting import NONE

SHORT = 3  # starts are compared after one in so many of the epochs
LAST = 20  # epochs over which their losses, which are noisy, are averaged


class Memberships(NamedTuple):
    """Hard, soft and overlapping communities of the same nodes."""

    hard: Array  # the metacommunity each node belongs to most [N]
    soft: Array  # share of each node's expected links in each, rows summing to one [N, K]
    overlapping: Array  # whether a node is a member of each [N, K]; of none, one or several


class CommunityDetector(ClusterMixin, Estimator):  # type: ignore[misc]
    """Finds overlapping communities from edges and features alone.

    Args:
        preset: Named settings: ``"communities"``, ``"default"``, ``"tuned"``, ``"paper"`` or
            ``"released"``.
        num_communities: Number of communities; ``"auto"`` finds it: a first fit empties those of
            32 that links can do without, a second one has as many as are left.
        num_metacommunities: Number of groups of communities, which ``communities`` reports; one
            per community if only their number is given.
        n_init: Number of starts, each for a third of the epochs; the best is trained to the end.

    The other parameters are those of :class:`vepm.NodeClassifier`, without ``class_weight``.

    Example:
        >>> import networkx as nx
        >>> from vepm import CommunityDetector
        >>> club = nx.karate_club_graph()
        >>> found = CommunityDetector(num_communities=2).fit(club)
        >>> found.communities(club).overlapping.shape
        (34, 2)
        >>> set.union(*found.cover(club).values()) <= set(club)
        True
    """

    _community_per_group = True
    n_init: int

    def __init__(
        self,
        *,
        graph: Any = None,
        preset: str = "communities",
        num_communities: int | str | None = None,
        num_metacommunities: int | None = None,
        n_init: int = 4,
        config: Config | None = None,
        device: str = "auto",
        random_state: RandomState = 0,
        progress: Progress | None = None,
        **settings: Any,
    ) -> None:
        self._assign(locals())

    def fit(self, X: Any, y: None = None) -> Self:
        """Learn communities from the edges; labels, if there are any, are not looked at."""
        self.fit_split(unlabelled(self._read(X)[0]), NONE, NONE)
        self.labels_ = self.communities(X).hard
        return self

    def _plan(self, dataset: Dataset, seed: int, check_memory: bool) -> tuple[Config, int]:
        config = self.settings(dataset.name)
        how: dict[str, Any] = {"device": self.device, "check_memory": check_memory}
        start = self._best_start(dataset, config, seed, how)
        if not config.training.shrinkage:
            return config, start
        # The prior that finds the number of communities also weakens those that it keeps.
        fitted = fit(dataset, config, seed=start, progress=self.progress, calibrated=False, **how)
        z, model = explain(fitted.model, fitted.source).memberships, fitted.model
        with torch.no_grad():
            links = interactions(z, model.interactions, fitted.card.config.model.num_communities)
        # A background, to which all nodes belong equally, has no members.
        count = max(int(members(links).any(0).sum()), 1) + (config.model.encoder == "background")
        groups = min(count, config.model.num_metacommunities)
        config = config.replace(num_communities=count, num_metacommunities=groups, shrinkage=0.0)
        return config, self._best_start(dataset, config, seed, how)

    def _best_start(self, dataset: Dataset, config: Config, seed: int, how: dict[str, Any]) -> int:
        epochs = config.training.pretrain_epochs // SHORT
        if self.n_init < 1:
            raise InputError(f"n_init must be at least 1, got {self.n_init}")
        if self.n_init == 1 or epochs == 0:
            return seed
        # Starts of two fits must not be the same ones in another order.
        drawn = np.random.SeedSequence(seed).generate_state(self.n_init - 1)
        config, losses = config.replace(pretrain_epochs=epochs), {}
        for start in (seed, *drawn.tolist()):
            rows = fit(dataset, config, seed=start, calibrated=False, **how).history
            losses[start] = float(np.mean([row["loss"] for row in rows[-LAST:]]))
        return min(losses, key=lambda start: losses[start])

    def predict(self, X: Any) -> Array:
        """The metacommunity each node belongs to most [N]."""
        return self.communities(X).hard

    def transform(self, X: Any) -> Array:
        """Mean affiliation of every node to every community [N, C]."""
        return np.asarray(self.memberships(X))

    def communities(self, X: Any) -> Memberships:
        """Hard, soft and overlapping memberships, by a node's links through each metacommunity.

        A node is a member where it has more than 0.3 times the expected links of a typical member,
        and if that is anywhere, then also in its main one (:func:`vepm.nn.members`).
        """
        _, rows, found = self._look(X)
        return self.communities_behind(found, rows)

    @torch.no_grad()
    def communities_behind(self, found: Explanation, rows: Rows = slice(None)) -> Memberships:
        """Memberships that follow from what :meth:`explain` returns, of all nodes or some."""
        grouping = self.model_.partitioner.grouping()
        links = interactions(found.memberships, self.model_.interactions, grouping)
        links, member = links[rows], members(links)[rows]
        return Memberships(
            hard=links.argmax(1).cpu().numpy(),
            soft=(links / links.sum(1, keepdim=True)).cpu().numpy(),
            overlapping=member.cpu().numpy(),
        )

    def cover(self, X: Any) -> dict[int, set[Any]]:
        """The members of each metacommunity that has any, by its number, as sets of node names.

        Names are node objects of a NetworkX graph, for which ``list(cover.values())`` is a cover,
        ids as text, or else indices.
        """
        dataset, rows, explained = self._look(X)
        names = node_names(X if self.graph is None else self.graph, dataset)
        member = self.communities_behind(explained, rows).overlapping
        nodes = np.arange(len(names))[rows]
        found = {k: {names[i] for i in nodes[inside]} for k, inside in enumerate(member.T)}
        return {k: nodes for k, nodes in found.items() if nodes}
