"""Communities without labels."""

from typing import Any, NamedTuple, Self

import networkx as nx
import numpy as np
import torch
from sklearn.base import ClusterMixin

from vepm.data import Dataset
from vepm.errors import InputError
from vepm.estimators.base import Array, Estimator, RandomState, Rows, unlabelled
from vepm.nn import interactions, members
from vepm.training import Config, Explanation, Fitted, Progress, explain, fit
from vepm.training.fitting import NONE

SHORT = 3
"""Starts are compared after one in so many of the epochs."""
LAST = 20
"""Epochs over which their losses, which are noisy, are averaged."""


class Memberships(NamedTuple):
    """Hard, soft and overlapping communities of the same nodes."""

    hard: Array
    """The metacommunity each node belongs to most [N]."""
    soft: Array
    """Share of each node's expected links in each metacommunity, rows summing to one [N, K]."""
    overlapping: Array
    """Whether a node is a member of a metacommunity [N, K]; of none, one or several."""


class CommunityDetector(ClusterMixin, Estimator):  # type: ignore[misc]
    """Finds overlapping communities from edges and features alone.

    Args:
        preset: Named settings: ``"communities"``, ``"default"``, ``"tuned"``, ``"paper"`` or
            ``"released"``.
        num_communities: Number of communities; ``"auto"`` finds it. A first fit of 32 has a prior
            that empties those which the links can do without; a second one has as many as are left.
        num_metacommunities: Number of groups of communities, which ``communities`` reports; one
            per community if only their number is given.
        n_init: Number of starts with different seeds. Each is trained for a third of the epochs,
            and the one of lowest loss to the end.

    The other parameters are those of :class:`vepm.NodeClassifier`, without ``class_weight``.

    Example:
        >>> import networkx as nx
        >>> from vepm import CommunityDetector
        >>> club = nx.karate_club_graph()
        >>> found = CommunityDetector(num_communities=2).fit(club)
        >>> found.communities(club).overlapping.shape
        (34, 2)
        >>> sorted(found.cover(club))
        [0, 1]
    """

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

    @staticmethod
    def _default_groups(config: Config, num_communities: int) -> int:
        return num_communities

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
        # The prior that tells how many communities there are also weakens those that it leaves.
        fitted = fit(dataset, config, seed=start, progress=self.progress, calibrated=False, **how)
        config = config.replace(**_sizes(fitted), shrinkage=0.0)
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
        """Hard, soft and overlapping memberships in the metacommunities.

        All go by a node's expected links through each metacommunity. A node is a member where it
        has more than 0.3 times those of a typical member, and if that is anywhere, then also in
        its main one (:func:`vepm.nn.members`).
        """
        dataset, rows = self._items(X)
        return self.communities_behind(self._explain(dataset), rows)

    def cover(self, X: Any) -> dict[int, set[Any]]:
        """The members of each metacommunity that has any, by its number, as sets of node names.

        Nodes of a NetworkX graph are its own node objects, so that ``list(cover.values())`` is a
        cover for NetworkX and CDlib. Other nodes go by their id as text, or by their index where
        they have none.

        Example:
            >>> import networkx as nx
            >>> from vepm import CommunityDetector
            >>> club = nx.karate_club_graph()
            >>> cover = CommunityDetector(num_communities=2).fit(club).cover(club)
            >>> set.union(*cover.values()) <= set(club)
            True
        """
        dataset, rows = self._items(X)
        member = self.communities_behind(self._explain(dataset), rows).overlapping
        names = node_names(X if self.graph is None else self.graph, dataset)
        nodes = np.arange(len(names))[rows]
        sets = {k: {names[i] for i in nodes[inside]} for k, inside in enumerate(member.T)}
        return {k: found for k, found in sets.items() if found}

    @torch.no_grad()
    def communities_behind(self, found: Explanation, rows: Rows = slice(None)) -> Memberships:
        """Memberships that follow from what :meth:`explain` gives, of all nodes or some."""
        model = self._model()
        links = interactions(found.memberships, model.interactions, model.partitioner.grouping())
        links, member = links[rows], members(links)[rows]
        return Memberships(
            hard=links.argmax(1).cpu().numpy(),
            soft=(links / links.sum(1, keepdim=True)).cpu().numpy(),
            overlapping=member.cpu().numpy(),
        )


@torch.no_grad()
def _sizes(fitted: Fitted) -> dict[str, int]:
    """Numbers of communities that have members, and of groups of them."""
    config, model = fitted.card.config.model, fitted.model
    z = explain(model, fitted.source).memberships
    links = interactions(z, model.interactions, config.num_communities)
    # A background, to which all nodes belong alike, has none.
    count = max(int(members(links).any(0).sum()), 1) + (config.encoder == "background")
    return {
        "num_communities": count,
        "num_metacommunities": min(count, config.num_metacommunities),
    }


def node_names(X: Any, dataset: Dataset) -> list[Any]:
    """What users call the nodes: NetworkX's node objects, ids as text, or indices."""
    if isinstance(X, nx.Graph):
        return list(X)
    return dataset.item_names if dataset.node_names else list(range(dataset.labels.numel()))
