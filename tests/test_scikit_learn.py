"""The estimators among scikit-learn's tools, and scikit-learn's own checks of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    permutation_test_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.class_weight import compute_class_weight
from torch_geometric.data import Data

from training.estimators import ESTIMATORS, estimator, fitted, graph_data, node_data
from training.toys import SMALL, TASKS, timeless
from vepm import CommunityDetector, NodeClassifier
from vepm.data import as_dataset, planted_graph
from vepm.errors import InputError
from vepm.training.config import FIELDS

NODES = np.arange(60)


def on_nodes(**options: Any) -> NodeClassifier:
    return NodeClassifier(graph=node_data(), config=SMALL["node"], device="cpu", **options)


def labels_of(task: str) -> NDArray[Any]:
    graphs = [node_data()] if task == "node" else graph_data()
    return torch.cat([graph.y for graph in graphs]).numpy()


@pytest.mark.parametrize("task", TASKS)
def test_every_setting_is_a_parameter(task: str) -> None:
    changed: dict[str, Any] = {
        "dropout": 0.25,
        "learning_rate": np.float64(0.02),
        "epochs": np.int64(7),
    }
    made: Any = ESTIMATORS[task](**changed)
    later = ESTIMATORS[task]().set_params(**changed)
    for found in (made, later, clone(made)):
        training = found.settings().training
        assert (found.settings().model.dropout, training.learning_rate) == (0.25, 0.02)
        assert type(training.epochs) is int
        assert found.get_params()["dropout"] == 0.25
    assert made.set_params(dropout=None).settings().model.dropout != 0.25
    for name in FIELDS:
        value = getattr(made.settings().model, name, None)
        value = getattr(made.settings().training, name) if value is None else value
        assert clone(ESTIMATORS[task]().set_params(**{name: value})).get_params()[name] == value
    assert "dropout=0.25" in repr(later)
    with pytest.raises(InputError, match="did you mean dropout"):
        ESTIMATORS[task](droput=0.5)
    with pytest.raises(ValueError, match="droput"):
        made.set_params(droput=0.5)
    with pytest.raises(InputError, match="dropout must be"):
        estimator(task, dropout=1.5).fit(node_data() if task == "node" else graph_data())


def test_fewer_communities_than_parts_by_default() -> None:
    assert NodeClassifier(num_communities=3).settings().model.num_metacommunities == 3
    assert NodeClassifier(num_communities=20).settings().model.num_metacommunities == 5
    assert CommunityDetector(num_communities=20).settings().model.num_metacommunities == 20
    both = CommunityDetector(num_communities=20, num_metacommunities=5).settings().model
    assert (both.num_communities, both.num_metacommunities) == (20, 5)


@pytest.mark.parametrize("task", TASKS)
def test_fit_uses_y(task: str) -> None:
    data: Any = node_data() if task == "node" else graph_data()
    y = labels_of(task)
    expected = fitted(task).predict_proba(data)
    np.testing.assert_array_equal(estimator(task).fit(data, y).predict_proba(data), expected)
    for graph in [data] if task == "node" else data:
        graph.y = None
    forms = [data, as_dataset(data, ESTIMATORS[task]._task)]
    # The dataset of unlabelled nodes has masks of none of them.
    for form in forms if task == "graph" else forms[:1]:
        np.testing.assert_array_equal(estimator(task).fit(form, y).predict_proba(form), expected)
    shuffled = np.random.default_rng(0).permutation(y)
    other = estimator(task).fit(data, shuffled).predict_proba(data)
    assert np.abs(other - expected).max() > 1e-3
    with pytest.raises(InputError, match=r"labels are .* of shape"):
        estimator(task).fit(data, y[:-1])


def test_masks_say_which_of_y_train() -> None:
    data = node_data()
    y = data.y.numpy()
    scrambled = np.where(data.test_mask, (y + 1) % 3, y)
    expected = fitted("node").predict_proba(data)
    for form in (data, as_dataset(data, "node")):
        found = estimator("node").fit(form, scrambled)
        np.testing.assert_array_equal(found.predict_proba(data), expected)
        right = found.predict(data) == scrambled
        assert found.score(form, scrambled) == right[data.test_mask.numpy()].mean()


def test_text_labels_stay_text() -> None:
    y = np.array(["1", "2", "10"])[labels_of("node")]
    clf = estimator("node").fit(node_data(), y)
    assert clf.classes_.tolist() == ["1", "2", "10"]
    assert set(clf.predict(node_data())) <= set(y)


def test_nodes_of_a_bound_graph_are_rows() -> None:
    data = node_data()
    train, rest = NODES[::2], NODES[1::2]
    hidden = torch.full_like(data.y, -1)
    hidden[::2] = data.y[::2]
    bare = Data(x=data.x, edge_index=data.edge_index, y=hidden)
    expected = estimator("node").fit(bare).predict_proba(bare)
    clf = on_nodes().fit(train, data.y[train])
    np.testing.assert_array_equal(clf.predict_proba(rest), expected[1::2])
    np.testing.assert_array_equal(clf.predict_proba(rest[:, None]), expected[1::2])
    assert clf.transform(rest[:7]).shape[0] == len(clf.memberships(rest[:7])) == 7
    assert clf.score(rest, data.y[rest]) == (clf.predict(rest) == data.y[rest].numpy()).mean()
    ends = clf.edge_partition(rest).edge_index
    assert ends.size > 0
    assert set(ends.flat) <= set(rest.tolist())
    for nodes, words in [
        ([0, 60], "holds node 60; the graph has nodes 0 to 59"),
        ([-1, 5], "holds node -1"),
        ([0.5, 1.0], "must be integers"),
        (data, "the indices of nodes, as graph= was given"),
    ]:
        with pytest.raises(InputError, match=words):
            clf.predict(nodes)
    with pytest.raises(InputError, match="needed as y"):
        on_nodes().fit(train)


def test_detectors_transform_nodes_into_memberships() -> None:
    data = node_data()
    detector = CommunityDetector(num_communities=3, pretrain_epochs=5, device="cpu")
    found = detector.fit_transform(data)
    assert found.shape == (60, 3)
    np.testing.assert_array_equal(found, detector.memberships(data))
    bound = clone(detector).set_params(graph=data)
    np.testing.assert_array_equal(bound.fit_transform(NODES[:9]), found[:9])
    assert bound.fit_predict(NODES[5:9]).shape == (4,)
    np.testing.assert_array_equal(bound.communities(NODES[:9]).hard, detector.labels_[:9])


def test_cross_validation_of_nodes() -> None:
    data = planted_graph(90, 3, overlap=0.02, average_degree=12, num_features=8, seed=1)
    config = SMALL["node"].replace(epochs=15, learning_rate=0.05)
    clf = NodeClassifier(graph=data, config=config, device="cpu")
    y = data.labels.numpy()
    assert cross_val_score(clf, np.arange(90), y, cv=3).mean() > 0.8
    score, others, p = permutation_test_score(
        clf, np.arange(90), y, cv=StratifiedKFold(2), n_permutations=4, random_state=0
    )
    assert (p, score > others.max() + 0.2) == (1 / 5, True)
    # Labels without meaning are not predicted, though the graph has its own.
    noise = np.random.default_rng(0).permutation(y)
    assert cross_val_score(clf, np.arange(90), noise, cv=3).mean() < 0.5


@pytest.mark.parametrize("task", TASKS)
def test_grids_and_pipelines(task: str) -> None:
    y = labels_of(task)
    X = NODES if task == "node" else graph_data()
    clf = on_nodes() if task == "node" else estimator("graph")
    grid = GridSearchCV(clf, {"dropout": [0.0, 0.9], "learning_rate": [1e-7, 0.05]}, cv=2)
    found = grid.fit(X, y)
    assert len(found.cv_results_["params"]) == 4
    assert found.best_estimator_.settings().training.learning_rate == 0.05
    pipeline = make_pipeline(FunctionTransformer(), clf)
    pipeline.set_params(**{f"{pipeline.steps[-1][0]}__dropout": 0.1})
    assert pipeline[-1].settings().model.dropout == 0.1
    np.testing.assert_array_equal(
        pipeline.fit(X, y).predict(X), clone(pipeline[-1]).fit(X, y).predict(X)
    )
    assert cross_val_predict(pipeline, X, y, cv=2, method="predict_proba").shape[0] == len(y)


def test_memberships_feed_other_models() -> None:
    data = planted_graph(120, 3, overlap=0.02, average_degree=12, num_features=8, seed=1)
    detector = CommunityDetector(
        graph=data, num_communities=3, encoder_channels=32, pretrain_epochs=150, device="cpu"
    )
    pipeline = make_pipeline(detector, LogisticRegression())
    assert cross_val_score(pipeline, np.arange(120), data.labels.numpy(), cv=3).mean() > 0.8


def test_class_weights_reach_the_loss() -> None:
    data = node_data()
    probabilities = {
        kind: estimator("node", class_weight=weight).fit(data).predict_proba(data)
        for kind, weight in {
            "none": None,
            "equal": {0: 3.0, 1: 3.0, 2: 3.0},
            "first": {0: 50.0},
            "balanced": "balanced",
            "other": {0: 0.0, 1: 1e-9},
        }.items()
    }
    np.testing.assert_array_equal(probabilities["none"], fitted("node").predict_proba(data))
    np.testing.assert_allclose(probabilities["equal"], probabilities["none"], rtol=1e-4)
    assert (probabilities["first"].mean(0) - probabilities["none"].mean(0))[0] > 0.02
    assert (probabilities["other"].mean(0) - probabilities["none"].mean(0))[2] > 0.02


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    data = node_data()
    data.train_mask = data.train_mask & ((data.y > 0) | (torch.arange(60) % 2 == 0))
    y = data.y[data.train_mask].numpy()
    weights = dict(enumerate(compute_class_weight("balanced", classes=np.arange(3), y=y)))
    assert len({round(weight, 6) for weight in weights.values()}) > 1
    found = [
        estimator("node", class_weight=weight).fit(data).predict_proba(data)
        for weight in (weights, "balanced", None)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    assert np.abs(found[1] - found[2]).max() > 1e-4


def test_class_weights_by_name_and_those_that_cannot_be() -> None:
    y = np.array(["ant", "bee", "cat"])[labels_of("node")]
    data = node_data()
    named = estimator("node", class_weight={"cat": 9.0}).fit(data, y)
    indexed = estimator("node", class_weight={2: 9.0}).fit(data)
    np.testing.assert_array_equal(named.predict_proba(data), indexed.predict_proba(data))
    for weight, words in [
        ({"dog": 1.0}, "there is no 'dog'"),
        ("even", "'balanced' or a dict, got 'even'"),
        ({0: -1.0}, "not negative"),
        (dict.fromkeys(range(3), 0.0), "not all 0"),
        ({0: float("nan")}, "finite"),
    ]:
        with pytest.raises(InputError, match=words):
            estimator("node", class_weight=weight).fit(data)


def test_runs_with_other_class_weights_are_not_resumed(tmp_path: Path) -> None:
    dataset = as_dataset(node_data(), "node")
    train, val = (torch.where(mask)[0] for mask in (dataset.masks or ())[:2])
    checkpoint = tmp_path / "state.safetensors"
    clf = estimator("node", class_weight="balanced")
    first = clf.fit_split(dataset, train, val, checkpoint=checkpoint)
    again = clone(clf).fit_split(dataset, train, val, checkpoint=checkpoint)
    assert timeless(again.history) == timeless(first.history)
    with pytest.raises(InputError, match="other settings"):
        estimator("node").fit_split(dataset, train, val, checkpoint=checkpoint)
    np.testing.assert_array_equal(
        clf.predict_proba(dataset), clone(clf).fit(dataset).predict_proba(dataset)
    )
