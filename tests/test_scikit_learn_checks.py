"""scikit-learn's own checks of estimators.

They give tables of numbers, which the estimators do not take: here every row of a table is a node
joined to its nearest neighbours, or a graph with a node per column.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import kneighbors_graph
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data
from torch_geometric.data import Data

from vepm import CommunityDetector, GraphClassifier, NodeClassifier
from vepm.data import Dataset
from vepm.estimators.base import Rows

_FEW: dict[str, Any] = {
    **{"device": "cpu", "hidden_channels": 8, "encoder_channels": 8, "num_samples": 0},
    **{"pretrain_epochs": 3, "epochs": 20, "learning_rate": 0.05, "dropout": 0.0},
    **{"passes": 1, "feature_norm": "standard"},
}


class Table:
    """Makes graphs of a table on the way in."""

    def fit(self, X: Any, y: Any = None) -> Any:
        validate_data(self, X, ensure_min_samples=2)
        return super().fit(X, y)  # type: ignore[misc]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.two_d_array = True
        return tags

    def _read(self, X: Any, y: Any = None, **known: Any) -> tuple[Dataset, Rows]:
        table = validate_data(self, X, reset=False)
        return super()._read(self._graphs(table), y, **known)  # type: ignore[misc]

    def _graphs(self, X: NDArray[Any]) -> Any:
        near = kneighbors_graph(X, min(5, len(X) - 1)) if len(X) > 1 else np.zeros((1, 1))
        return X, near + near.T


class NodeTable(Table, NodeClassifier):
    pass


class CommunityTable(Table, CommunityDetector):
    pass


class GraphTable(Table, GraphClassifier):
    def _graphs(self, X: NDArray[Any]) -> Any:
        pairs = torch.combinations(torch.arange(X.shape[1])).t()
        edges = torch.cat([pairs, pairs.flip(0)], dim=1)
        return [Data(x=torch.diag(torch.tensor(row)), edge_index=edges) for row in X]


_NEIGHBOURS = "a prediction depends on the neighbours in the graph, so on the other rows"
_LAST_DIGIT = "sums in single precision, in another order, differ in the last digit"
_NO_SCORE = "it scores the nodes that trained, which `score` never counts"
SKIPPED: dict[str, dict[str, str]] = {
    "all": {
        "check_do_not_raise_errors_in_init_or_set_params": (
            "it gives **settings itself a value; a name that is no setting is refused at once"
        ),
    },
    "classifiers": {
        "check_classifiers_classes": "it has a class -1, which means unlabelled",
        "check_classifiers_regression_target": (
            "refused, in other words: the message names the first label that is not an integer"
        ),
        "check_requires_y_none": "labels may come with the graph",
    },
    "NodeTable": {
        "check_fit_score_takes_y": _NO_SCORE,
        "check_methods_sample_order_invariance": _LAST_DIGIT,
        "check_methods_subset_invariance": _NEIGHBOURS,
        "check_pipeline_consistency": _NO_SCORE,
    },
    "CommunityTable": {
        "check_methods_sample_order_invariance": _LAST_DIGIT,
        "check_methods_subset_invariance": _NEIGHBOURS,
    },
}
"""Checks that an estimator of graphs does not pass, and why."""


def _skipped(estimator: Any) -> dict[str, str]:
    name = type(estimator).__name__
    classifiers = {} if name == "CommunityTable" else SKIPPED["classifiers"]
    return SKIPPED["all"] | classifiers | SKIPPED.get(name, {})


@parametrize_with_checks(
    [
        NodeTable(**_FEW),
        GraphTable(**_FEW | {"batch_size": 100}),
        CommunityTable(**_FEW | {"num_communities": 3, "pretrain_epochs": 150}),
    ],
    expected_failed_checks=_skipped,
)
def test_checks_of_scikit_learn(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
