"""Links: how likely any two nodes are joined, and through which communities."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.preprocessing import StandardScaler

from vepm.data import Dataset
from vepm.data.canonical import structural_features
from vepm.errors import InputError
from vepm.estimators.base import Estimator, RandomState
from vepm.estimators.inputs import Array, node_names, unlabelled
from vepm.estimators.pairs import (
    EVIDENCE,
    EdgeSplit,
    Links,
    Nodes,
    candidates,
    each_once,
    ranked,
    split_edges,
    surroundings,
)
from vepm.files import read_toml, write_text
from vepm.kernels.shares import couple
from vepm.measures import calibration_error
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

    The terms say how alike two nodes are, how strong, how alike their surroundings h are
    (features, averaged around each node by personalised PageRank), and how high their degrees k.
    A node whose links are missing is weak because they are, so strength counts for less than in
    the likelihood of the edges. Communities explain the first two: ``share`` says how a pair's
    rate is made up.

    A tenth of the edges is held out from training. Half of them, with as many pairs without an
    edge, fit a to e; e is then corrected for how rare edges are among all pairs. The others give
    ``scores_``: AUC, average precision and calibration error. Predictions see all edges.

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
        """Learn from the edges of a graph alone; ``how`` is passed on to :meth:`fit_split`."""
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
        graph = copy.copy(parts.graph)
        if dataset.num_positions:
            # Features that follow from the edges must not tell of those held out.
            count = int(graph.num_nodes or 0)
            graph.x, _ = structural_features(graph.edge_index, count, coordinates=True)
        seen = replace(unlabelled(dataset), graphs=[graph])
        self.fit_split(seen, NONE, NONE, **how)
        nodes = self.nodes(seen)
        joined, evidence = ranked(nodes.evidence, parts.val)
        scale = StandardScaler().fit(evidence)
        curve = LogisticRegression().fit(scale.transform(evidence), joined)
        weights = curve.coef_[0] / scale.scale_
        count, edges = len(nodes.z), dataset.graphs[0].num_edges / 2
        odds = edges / max(count * (count - 1) / 2 - edges, 1)
        self.calibration_ = dict(zip(EVIDENCE, weights.tolist(), strict=True)) | {
            "intercept": float(curve.intercept_[0] - scale.mean_ @ weights),
            "log_odds": float(np.log(odds)),
        }
        joined, logits = ranked(lambda pairs: nodes.log_odds(pairs, self.calibration_), parts.test)
        p = torch.from_numpy(expit(logits))
        error = calibration_error(torch.stack([1 - p, p], dim=1), torch.from_numpy(joined))
        self.scores_ = {
            "auc": float(roc_auc_score(joined, logits)),
            "average_precision": float(average_precision_score(joined, logits)),
            "calibration_error": error,
        }
        return self

    def predict_proba(self, pairs: Any, X: Any = None) -> Array:
        """Probability that the nodes of each pair are joined [P].

        Args:
            pairs: Pairs of nodes [P, 2].
            X: Another graph, perhaps with new nodes, whose affiliations follow from their edges
                and features; by default the one that was fitted.
        """
        nodes = self.nodes(X)
        return nodes.probability(nodes.indices_of(pairs), self.calibration_)

    def score(self, X: Any = None, pairs: Any = None, y: Any = None) -> float:
        """Area under the ROC curve: of pairs of nodes [P, 2] that are joined or not, y [P].

        By default they are the edges held out by ``fit``, with as many pairs without an edge.
        """
        self._model()
        if pairs is None:
            return self.scores_["auc"]
        return float(roc_auc_score(np.asarray(y), self.predict_proba(pairs, X)))

    def explain_pairs(self, pairs: Any, X: Any = None) -> Links:
        """Probability of each pair, and the communities behind it."""
        nodes = self.nodes(X)
        return nodes.links(nodes.indices_of(pairs), self.calibration_)

    def missing_links(self, X: Any = None, top: int = 20) -> Links:
        """The pairs without an edge that are likeliest to be joined, the likeliest first.

        Candidates are the pairs at distance two and those of the strongest nodes of every
        community, so that time and memory do not grow with the square of the number of nodes.
        """
        nodes = self.nodes(X)
        best, logits = np.empty((2, 0), dtype=np.int64), np.empty(0)
        for pairs in candidates(nodes.edge_index, nodes.z * nodes.meeting):
            every = np.concatenate([best, pairs], axis=1)
            logits = np.concatenate([logits, nodes.log_odds(pairs, self.calibration_)])
            _, first = np.unique(every[0] * len(nodes.z) + every[1], return_index=True)
            kept = first[np.argsort(-logits[first], kind="stable")[:top]]
            best, logits = every[:, kept], logits[kept]
        return nodes.links(best, self.calibration_)

    def surprising_edges(self, X: Any = None, top: int | None = None) -> Links:
        """The edges of the graph, the most surprising first; the model has seen all of them."""
        nodes = self.nodes(X)
        once = each_once(nodes.edge_index)
        order = np.argsort(nodes.log_odds(once, self.calibration_), kind="stable")[:top]
        return nodes.links(once[:, order], self.calibration_)

    def transform(self, X: Any) -> Array:
        """Mean affiliation of every node to every community [N, C]; new nodes among them."""
        return self.nodes(X).z

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
            # Models of earlier releases use likeness and strength alone.
            given = {"features": 0.0, "degree": 0.0} | found["calibration"]
            names = (*EVIDENCE, "intercept", "log_odds")
            model.calibration_ = {name: float(given[name]) for name in names}
            model.scores_ = {name: float(value) for name, value in found["scores"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{path}: holds no calibration of links") from None
        return model

    def nodes(self, X: Any = None) -> Nodes:
        """What each node of a graph, by default of the fitted one, contributes to its links."""
        if X is None:
            self._model()
            if not hasattr(self, "fitted_graph_"):
                raise InputError("a model that was loaded has no graph: give one as X")
            if self._known is None:
                self._known = self.nodes(self.fitted_graph_)
            return self._known
        dataset, _, found = self._look(X)
        graph, z = dataset.graphs[0], found.memberships.cpu()
        degree = np.bincount(graph.edge_index[0].numpy(), minlength=len(z))
        return Nodes(
            node_names(X, dataset),
            graph.edge_index,
            z.numpy(),
            couple(z, self._model().interactions.detach().cpu()).numpy(),
            surroundings(graph.x, graph.edge_index),
            np.log1p(degree),
        )
