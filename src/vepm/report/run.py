"""A finished run: everything a report shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vepm import nn

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything a report shows, as a run folder holds it.

    Labels, predictions, probabilities and masks are over *items*: nodes in a node task, graphs
    in a graph task. What a run has no use for is None.
    """

    folder: Path
    settings: Mapping[str, Any]  # config.toml
    metrics: Mapping[str, Any]  # metrics.json
    history: Mapping[str, Array]  # columns of history.csv: ``phase`` is text, others numbers or NaN
    edge_index: Ints  # both directions [2, E]
    edge_weight: Floats  # share of each edge in each metacommunity [E, K]
    memberships: Floats  # posterior mean of Z [N, C]
    activation: Floats  # of each community [C]
    labels: Ints | None = None  # true class of each item, -1 where unknown
    prediction: Ints | None = None
    probabilities: Floats | None = None  # of each class [items, classes]
    community_embeddings: Floats | None = None  # [N, K, D]
    log_odds: Floats | None = None  # of each item's prediction at the posterior mean
    log_odds_without: Floats | None = None  # the same without one metacommunity [items, K]
    label_without: Ints | None = None  # the class each item would get then [items, K]
    batch: Ints | None = None  # graph of each node [N], for graph tasks
    assignment: Floats | None = None  # of communities to metacommunities [C, K], where learned
    features: Floats | None = None  # [N, F]
    masks: Mapping[str, Bools]  # which items were in ``train``, ``val`` and ``test``
    class_names: tuple[str, ...]
    node_names: tuple[str, ...]
    graph_names: tuple[str, ...]
    feature_names: tuple[str, ...]

    @property
    def task(self) -> str:
        """``"node"`` or ``"graph"``."""
        return str(self.metrics["task"])

    @property
    def title(self) -> str:
        """Name of the dataset."""
        return str(self.metrics["dataset"])

    @property
    def items(self) -> str:
        """What is labelled, in the plural."""
        return f"{self.task}s"

    @property
    def num_nodes(self) -> int:
        """Number of nodes, of all graphs together."""
        return len(self.memberships)

    @property
    def num_metacommunities(self) -> int:
        """Number of parts K each edge is split into."""
        return self.edge_weight.shape[1]

    @property
    def num_items(self) -> int:
        """Number of nodes or graphs that may have labels."""
        return self.num_nodes if self.batch is None else len(self.graph_names)

    @property
    def community_names(self) -> list[str]:
        """Communities numbered as in Python and in CSV files."""
        return [f"Community {k}" for k in range(self.num_metacommunities)]

    @cached_property
    def interaction(self) -> Floats:
        """Each node's links by metacommunity [N, K], see :func:`vepm.nn.interactions`."""
        grouping = self.num_metacommunities if self.assignment is None else self.assignment
        return interactions(self.memberships, self.activation, grouping, self.batch)

    @property
    def part_of_each(self) -> Ints:
        """The metacommunity to which each community mostly belongs [C]."""
        if self.assignment is not None:
            return self.assignment.argmax(axis=1)
        sizes = nn.segment_sizes(self.memberships.shape[1], self.num_metacommunities)
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def background(self) -> Bools:
        """Metacommunities of communities to which all nodes belong equally, as a background [K]."""
        alike = np.all(self.memberships == self.memberships[:1], axis=0)
        parts = (self.part_of_each[which] for which in (alike, ~alike))
        same, other = (np.bincount(part, minlength=self.num_metacommunities) for part in parts)
        return (same > other) & other.any()

    @cached_property
    def member(self) -> Bools:
        """Who is a member of which metacommunity [N, K]; nobody is of the background."""
        found = nn.members(_tensor(self.interaction), _tensor(self.batch)).numpy()
        return found & ~self.background

    @property
    def confidence(self) -> Floats:
        """Probability of each item's likeliest class; one where there are no probabilities."""
        return np.ones(self.num_items) if self.probabilities is None else self.probabilities.max(1)

    @property
    def support(self) -> Floats | None:
        """How far each item's log-odds fall without each metacommunity [items, K]."""
        if self.log_odds is None or self.log_odds_without is None or self.label_without is None:
            return None
        return self.log_odds[:, None] - self.log_odds_without

    def labelled(self, split: str) -> Bools:
        """Which items of a split have labels."""
        if self.labels is None or split not in self.masks:
            return np.zeros(self.num_items, dtype=bool)
        return self.masks[split] & (self.labels >= 0)


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: commas, and an "and" before the last."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def interactions(
    memberships: Floats, activation: Floats, grouping: Floats | int, batch: Ints | None = None
) -> Floats:
    """:func:`vepm.nn.interactions` of arrays: each node's links by metacommunity [N, K]."""
    return nn.interactions(*map(_tensor, (memberships, activation, grouping, batch))).numpy()


def _tensor(array: Any) -> Any:
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else array
