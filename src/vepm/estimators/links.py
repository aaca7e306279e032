"""Links: how likely any two nodes are joined, and through which communities."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch_geometric.data import Data

from vepm.data import Dataset
from vepm.data.features import structural_features
from vepm.errors import InputError
from vepm.estimators.base import Array, Estimator, RandomState, unlabelled
from vepm.estimators.communities import node_names
from vepm.estimators.pairs import (
    EVIDENCE,
    LEAST_RATE,
    EdgeSplit,
    Links,
    Nodes,
    Pairs,
    candidates,
    each_once,
    indices_of,
    split_edges,
    surroundings,
)
from vepm.files import read_toml, write_text
from vepm.kernels.shares import couple
from vepm.runs.metrics import calibration_error
from vepm.training import Config, Progress
from vepm.training.fitting import NONE

CALIBRATION = "links.toml"
HELD_OUT = 0.05  # share of the edges that calibrates, and the same again that scores


class LinkPredictor(Estimator):
    r"""Says how likely any two nodes are joined, and through which communities.

    .. math:: P(A_{ij} = 1) = \sigma\Big(a \log \frac{r_{ij}}{\sqrt{r_{ii} r_{jj}}}
              + b \log \sqrt{r_{ii} r_{jj}} + c \cos(h_i, h_j)
              + d \log (1 + k_i)(1 + k_j) + e\Big), \qquad
              r_{ij} = \sum_c \gamma_c z_{ic} z_{jc}

    The first term says how alike two nodes are, the second how strong. A node whose links are
    missing is weak because they are, so that strength counts for less than in the likelihood of
    the edges that are there. The third compares their surroundings: features, averaged around
    each node by personalised PageRank. The fourth is for their degrees k. Communities explain the
    first two: ``share`` says how a pair's rate is made up.

    A tenth of the edges is held out from training. Half of them, beside as many pairs without an
    edge, fit a to e; e is then corrected for how rare edges are among all pairs. The other
    half gives ``scores_``: AUC, average precision and calibration error. Predictions see all
    edges.

    Args:
        preset: Named settings: ``"links"``, or those of the other estimators.

    The other parameters are those of :class:`vepm.NodeClassifier`, without ``graph`` and
    ``class_weight``.

    ``fit`` takes one graph in any form that :class:`vepm.NodeClassifier` does. Pairs are given by
    node: the graph's own nodes for NetworkX, ids where the data have them, indices otherwise.

    Example:
        >>> import networkx as nx
        >>> from vepm import LinkPredictor
        >>> club = nx.karate_club_graph()
        >>> model = LinkPredictor(num_communities=4).fit(club)
        >>> model.predict_proba([(0, 9), (14, 32)]).shape
        (2,)
        >>> len(model.missing_links(top=5).nodes)
        5
    """

    _known: Nodes | None = None

    def __init__(
        self,
        *,
        preset: str = "links",
        num_communities: int | str | None = None,
        config: Config | None = None,
        device: str = "auto",
        random_state: RandomState = 0,
        progress: Progress | None = None,
        **settings: Any,
    ) -> None:
        self._assign(locals())

    def fit(self, X: Any, y: None = None, **how: Any) -> Self:
        """Learn from the edges of a graph; labels, if there are any, are not looked at.

        ``how`` may hold ``checkpoint`` and ``check_memory``, as in :meth:`fit_split`.
        """
        dataset, _ = self._read(X)
        parts = split_edges(dataset.graphs[0], HELD_OUT, HELD_OUT, self._seed())
        self.fit_edges(dataset, parts, **how)
        self.fitted_graph_, self._known = X, None
        return self

    def fit_edges(self, dataset: Dataset, parts: EdgeSplit, **how: Any) -> Self:
        """Fit to a split of your choice: its graph trains, ``val`` calibrates, ``test`` scores."""
        if dataset.directed:
            found = f"{dataset.name}: links are predicted in undirected graphs only"
            raise InputError(f"{found}; leave out directed=True (--directed)")
        seen = replace(unlabelled(dataset), graphs=[_own_features(parts.graph, dataset)])
        self.fit_split(seen, NONE, NONE, **how)
        nodes = self._nodes(self.card_.prepare(seen), None)
        evidence, joined = _labelled([nodes.evidence(pairs) for pairs in parts.val])
        scale = StandardScaler().fit(evidence)
        curve = LogisticRegression().fit(scale.transform(evidence), joined)
        weights = curve.coef_[0] / scale.scale_
        count, edges = len(nodes.z), dataset.graphs[0].num_edges / 2
        odds = edges / max(count * (count - 1) / 2 - edges, 1)
        self.calibration_ = dict(zip(EVIDENCE, weights.tolist(), strict=True)) | {
            "intercept": float(curve.intercept_[0] - scale.mean_ @ weights),
            "log_odds": float(np.log(odds)),
        }
        self.scores_ = self._scores(nodes, parts.test)
        return self

    def predict_proba(self, pairs: Any, X: Any = None) -> Array:
        """Probability that the nodes of each pair are joined [P].

        Args:
            pairs: Pairs of nodes [P, 2].
            X: Another graph, such as one with new nodes; by default the one that was fitted.
                Affiliations of its nodes follow from their edges and features; nothing is
                trained.
        """
        nodes = self._graph(X)
        return self._probability(nodes, indices_of(pairs, nodes.names))

    def decision_function(self, pairs: Pairs, X: Any = None) -> Array:
        """Log-odds of pairs of indices [2, P] among as many edges as non-edges."""
        return self._logits(self._graph(X), pairs)

    def evidence(self, pairs: Pairs, X: Any = None) -> Array:
        """What the log-odds of pairs of indices [2, P] are made of [P, 4].

        The columns are likeness, strength, features and degree, as in ``calibration_``.
        """
        return self._graph(X).evidence(pairs)

    def score(self, X: Any = None, pairs: Any = None, y: Any = None) -> float:
        """Area under the ROC curve: of pairs of nodes [P, 2] that are joined or not, y [P].

        By default they are the edges held out by ``fit``, beside as many pairs without an edge.
        """
        self._model()
        if pairs is None:
            return self.scores_["auc"]
        return float(roc_auc_score(np.asarray(y), self.predict_proba(pairs, X)))

    def explain_pairs(self, pairs: Any, X: Any = None) -> Links:
        """Probability of each pair, and the communities behind it."""
        nodes = self._graph(X)
        return self._links(nodes, indices_of(pairs, nodes.names))

    def missing_links(self, X: Any = None, top: int = 20) -> Links:
        """The pairs without an edge that are likeliest to be joined, the likeliest first.

        Candidates are the pairs at distance two and those of the strongest nodes of every
        community, so that time and memory do not grow with the square of the number of nodes.
        """
        nodes = self._graph(X)
        best, logits = np.empty((2, 0), dtype=np.int64), np.empty(0)
        for pairs in candidates(nodes.edge_index, nodes.z * nodes.meeting):
            every = np.concatenate([best, pairs], axis=1)
            logits = np.concatenate([logits, self._logits(nodes, pairs)])
            _, first = np.unique(every[0] * len(nodes.z) + every[1], return_index=True)
            kept = first[np.argsort(-logits[first], kind="stable")[:top]]
            best, logits = every[:, kept], logits[kept]
        return self._links(nodes, best)

    def surprising_edges(self, X: Any = None, top: int | None = None) -> Links:
        """The edges of the graph, the most surprising first.

        Affiliations follow from the edges too, so an edge is judged with itself in view: what is
        surprising even so stands out.
        """
        nodes = self._graph(X)
        once = each_once(nodes.edge_index)
        order = np.argsort(self._logits(nodes, once), kind="stable")[:top]
        return self._links(nodes, once[:, order])

    def transform(self, X: Any) -> Array:
        """Mean affiliation of every node to every community [N, C]; new nodes among them."""
        return self._graph(X).z

    def save(self, folder: str | Path) -> None:
        """Write the trained model, its settings and its calibration into a folder."""
        super().save(folder)
        lines = []
        for section, values in (("calibration", self.calibration_), ("scores", self.scores_)):
            lines += [f"[{section}]", *(f"{key} = {value!r}" for key, value in values.items())]
        write_text(Path(folder) / CALIBRATION, "\n".join([*lines, ""]))

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Self:
        """Read a model that :meth:`save`, or ``vepm links``, wrote."""
        path = Path(folder) / CALIBRATION
        found = read_toml(path)
        model = super().load(folder, device)
        try:
            # Models of earlier releases go by likeness and strength alone.
            given = {"features": 0.0, "degree": 0.0} | found["calibration"]
            names = (*EVIDENCE, "intercept", "log_odds")
            model.calibration_ = {name: float(given[name]) for name in names}
            model.scores_ = {name: float(value) for name, value in found["scores"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{path}: holds no calibration of links") from None
        return model

    def _graph(self, X: Any) -> Nodes:
        """The nodes of a graph, by default of the fitted one."""
        self._model()
        if X is not None:
            return self._nodes(self._items(X)[0], X)
        if not hasattr(self, "fitted_graph_"):
            raise InputError("a model that was loaded has no graph: give one as X")
        if self._known is None:
            self._known = self._graph(self.fitted_graph_)
        return self._known

    @torch.no_grad()
    def _nodes(self, dataset: Dataset, X: Any) -> Nodes:
        """The nodes of a prepared graph, called as in X."""
        graph = dataset.graphs[0]
        z = self._explain(dataset).memberships.cpu()
        degree = np.bincount(graph.edge_index[0].numpy(), minlength=len(z))
        return Nodes(
            node_names(X, dataset),
            graph.edge_index,
            z.numpy(),
            couple(z, self._model().interactions.cpu()).numpy(),
            surroundings(graph.x, graph.edge_index),
            np.log1p(degree),
        )

    def _logits(self, nodes: Nodes, pairs: Pairs) -> Array:
        weights = np.array([self.calibration_[name] for name in EVIDENCE])
        return nodes.evidence(pairs) @ weights + self.calibration_["intercept"]

    def _probability(self, nodes: Nodes, pairs: Pairs) -> Array:
        """Calibrated among all pairs, of which few are edges."""
        return expit(self._logits(nodes, pairs) + self.calibration_["log_odds"])

    def _scores(self, nodes: Nodes, pairs: tuple[Pairs, Pairs]) -> dict[str, float]:
        logits, joined = _labelled([self._logits(nodes, part) for part in pairs])
        p = torch.from_numpy(expit(logits))
        known = torch.stack([1 - p, p], dim=1), torch.from_numpy(joined).long()
        return {
            "auc": float(roc_auc_score(joined, logits)),
            "average_precision": float(average_precision_score(joined, logits)),
            "calibration_error": calibration_error(*known),
        }

    def _links(self, nodes: Nodes, pairs: Pairs) -> Links:
        (i, j), z, meeting = pairs, nodes.z, nodes.meeting
        # Both are equal, unless communities interact with each other.
        parts = meeting[i] * z[j] + z[i] * meeting[j]
        return Links(
            [(nodes.names[i], nodes.names[j]) for i, j in pairs.T.tolist()],
            self._probability(nodes, pairs),
            parts / np.maximum(parts.sum(1, keepdims=True), LEAST_RATE),
        )


def _own_features(graph: Data, dataset: Dataset) -> Data:
    """A graph whose features, if they are its degrees and coordinates, follow from its edges."""
    if dataset.num_positions:
        graph, count = graph.clone(), int(graph.num_nodes or 0)
        graph.x, _ = structural_features(graph.edge_index, count, coordinates=True)
    return graph


def _labelled(parts: list[Array]) -> tuple[Array, Array]:
    """Values of edges and of non-edges, joined, and which are edges."""
    return np.concatenate(parts), np.repeat([1.0, 0.0], [len(part) for part in parts])
