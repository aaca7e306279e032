"""The classifiers as scikit-learn users expect them, whatever the graph came as."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch_geometric.data import Data

from training.estimators import data_for, estimator, fitted, graph_data, node_data
from training.toys import SMALL, TASKS, roles, toy
from vepm import CommunityDetector, GraphClassifier, NodeClassifier
from vepm.cli.jobs import settings as command_settings
from vepm.cli.options import Given
from vepm.data import Dataset, as_dataset, load


def as_networkx(data: Data) -> "nx.Graph[str]":
    graph: nx.Graph[str] = nx.Graph()
    for i, row in enumerate(data.x.tolist()):
        split = [name for name in ("train", "val", "test") if data[f"{name}_mask"][i]]
        graph.add_node(f"n{i}", **dict(zip("abcdef", row, strict=True)))
        graph.nodes[f"n{i}"]["label"] = int(data.y[i])
        graph.nodes[f"n{i}"]["split"] = split[0] if split else ""
    graph.add_edges_from((f"n{i}", f"n{j}") for i, j in data.edge_index.t().tolist())
    return graph


@pytest.mark.parametrize("kind", [NodeClassifier, GraphClassifier, CommunityDetector])
def test_parameters_can_be_read_set_and_cloned(kind: Any) -> None:
    first = kind(num_communities=12, num_metacommunities=3, random_state=7, config=SMALL["node"])
    params = first.get_params()
    assert set(params) - {"graph", "class_weight", "n_init"} == {
        *("preset", "num_communities", "num_metacommunities"),
        *("config", "device", "random_state", "progress"),
    }
    assert kind(**params).get_params() == params
    copy = clone(first)
    assert copy is not first
    assert copy.get_params() == params
    assert copy.set_params(random_state=8, preset="paper") is copy
    assert (copy.random_state, copy.preset, first.random_state) == (8, "paper", 7)
    with pytest.raises(ValueError, match="num_comunities"):
        first.set_params(num_comunities=3)
    assert repr(first).startswith(kind.__name__)


@pytest.mark.parametrize("task", TASKS)
def test_clones_of_a_fitted_estimator_are_not_fitted(task: str) -> None:
    first = fitted(task)
    second = clone(first)
    with pytest.raises(NotFittedError):
        second.predict(data_for(task))
    second.fit(data_for(task))
    expected = first.predict_proba(data_for(task))
    np.testing.assert_array_equal(second.predict_proba(data_for(task)), expected)


@pytest.mark.parametrize(
    "call",
    ["predict", "predict_proba", "score", "transform", "memberships", "edge_partition", "save"],
)
@pytest.mark.parametrize("task", TASKS)
def test_nothing_but_fit_works_before_fit(task: str, call: str, tmp_path: Path) -> None:
    argument = tmp_path if call == "save" else data_for(task)
    with pytest.raises(NotFittedError, match="call fit first"):
        getattr(estimator(task), call)(argument)
    assert list(tmp_path.iterdir()) == []


def test_named_settings_stand_above_presets_and_configurations() -> None:
    found = NodeClassifier(preset="released", num_communities=24, hidden_channels=32).settings()
    assert (found.model.num_communities, found.model.hidden_channels) == (24, 32)
    assert found.training.sampling is False
    found = NodeClassifier(config=SMALL["node"], num_metacommunities=3).settings()
    assert found == SMALL["node"].replace(num_metacommunities=3)


def test_tuned_settings_of_a_known_dataset_are_those_of_the_command_line() -> None:
    known = replace(toy("node"), name="Cora")
    clf = NodeClassifier(preset="tuned", pretrain_epochs=1, epochs=1, device="cpu").fit(known)
    pairs = ["pretrain_epochs=1", "epochs=1"]
    assert clf.card_.config == command_settings(known, Given(preset="tuned", settings=pairs))
    assert clf.card_.config != clf.settings()
    assert clf.card_.config == clf.settings("Cora")


def test_one_graph_in_every_form_gives_the_same_predictions() -> None:
    data = node_data(val_mask=torch.zeros(60, dtype=torch.bool))
    data.train_mask = ~data.test_mask
    forms: list[Any] = [data, [data], as_networkx(data), as_dataset(data, "node")]
    found = [estimator("node").fit(form).predict_proba(form) for form in forms]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_matrices_give_the_same_predictions_as_a_graph() -> None:
    data = node_data()
    y = torch.where(data.test_mask, -1, data.y)
    adjacency = sp.coo_array((np.ones(data.edge_index.size(1)), data.edge_index.numpy()), (60, 60))
    bare = Data(x=data.x, edge_index=data.edge_index, y=y)
    expected = estimator("node").fit(bare).predict_proba(bare)
    for matrix in (adjacency.tocsr(), adjacency.tocsc(), sp.csr_matrix(adjacency)):
        for x in (data.x.numpy(), data.x, sp.csr_array(data.x.numpy())):
            given = (x, matrix, y.numpy())
            clf = estimator("node")
            if matrix.format == "csr" and isinstance(x, np.ndarray):
                clf.fit(given)
            else:
                clf = _matrix_classifier()
            np.testing.assert_array_equal(clf.predict_proba(given), expected)
            np.testing.assert_array_equal(clf.predict_proba((x, matrix)), expected)


@functools.cache
def _matrix_classifier() -> Any:
    data = node_data()
    y = torch.where(data.test_mask, -1, data.y)
    return estimator("node").fit(Data(x=data.x, edge_index=data.edge_index, y=y))


def test_graphs_in_every_form_give_the_same_predictions() -> None:
    graphs = graph_data()
    networks = []
    for data in graphs:
        network: nx.Graph[int] = nx.Graph(label=f"class {int(data.y)}")
        for i, (a, b, c) in enumerate(data.x.tolist()):
            network.add_node(i, a=a, b=b, c=c)
        network.add_edges_from(data.edge_index.t().tolist())
        networks.append(network)
    forms: list[Any] = [graphs, tuple(graphs), toy("graph"), networks]
    found = [estimator("graph").fit(form).predict_proba(form) for form in forms]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize(
    ("names", "kind"), [(["red", "green", "blue"], "U"), ([5, 7, 30], "i"), (["a1", "b", "9"], "U")]
)
def test_labels_come_back_as_they_were_given(names: list[Any], kind: str) -> None:
    data = node_data()
    y = np.array(names)[data.y.numpy()]
    adjacency = sp.csr_array((np.ones(data.edge_index.size(1)), data.edge_index.numpy()), (60, 60))
    clf = estimator("node").fit((data.x.numpy(), adjacency, y))
    predicted = clf.predict((data.x.numpy(), adjacency))
    assert clf.classes_.dtype.kind == predicted.dtype.kind == kind
    assert clf.classes_.tolist() == sorted(names)
    assert set(predicted.tolist()) <= set(names)
    chosen = clf.classes_[clf.predict_proba((data.x.numpy(), adjacency)).argmax(1)]
    np.testing.assert_array_equal(predicted, chosen)


@pytest.mark.parametrize("names", [("²", "³"), ("--1", "--2"), ("１", "x")])
def test_odd_names_stay_names(names: tuple[str, str]) -> None:
    graph = nx.path_graph(12)
    nx.set_node_attributes(graph, {i: names[i % 2] for i in range(12)}, "label")
    clf = estimator("node").fit(graph)
    assert clf.classes_.tolist() == sorted(names)


def test_labels_outside_the_train_mask_are_not_learned_from() -> None:
    data = node_data()
    expected = fitted("node").predict_proba(data)
    scrambled = torch.where(data.test_mask, (data.y + 1) % 3, data.y)
    other = estimator("node").fit(node_data(y=scrambled))
    np.testing.assert_array_equal(other.predict_proba(data), expected)


def test_unlabelled_nodes_are_predicted_and_not_learned_from() -> None:
    data = node_data()
    y = torch.where(data.test_mask, -1, data.y)
    clf = estimator("node").fit(node_data(y=y))
    np.testing.assert_array_equal(clf.predict_proba(data), fitted("node").predict_proba(data))
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.predict(data).shape == (60,)


def test_unlabelled_graphs_are_predicted_and_not_learned_from() -> None:
    graphs = graph_data()
    for graph in graphs[:2]:
        graph.y = torch.tensor([-1])
    clf = estimator("graph").fit(graphs)
    assert clf.predict_proba(graphs).shape == (12, 2)
    alone = estimator("graph").fit(graphs)
    np.testing.assert_array_equal(alone.predict_proba(graphs), clf.predict_proba(graphs))


def test_without_a_val_mask_a_fifth_is_set_aside_the_same_way_twice() -> None:
    data = node_data(val_mask=torch.zeros(60, dtype=torch.bool))
    first, second = (estimator("node").fit(data) for _ in range(2))
    assert "val_accuracy" in first.history_[-1]
    np.testing.assert_array_equal(first.predict_proba(data), second.predict_proba(data))


def test_with_very_few_labels_all_of_them_train() -> None:
    club = load("KarateClub")
    clf = estimator("node").fit(club)
    assert "val_accuracy" not in clf.history_[-1]
    assert clf.best_epoch_ == SMALL["node"].training.epochs - 1


def test_masks_of_graphs_are_respected() -> None:
    train, val, test = roles("graph")
    masks = [torch.zeros(12, dtype=torch.bool) for _ in range(3)]
    for mask, rows in zip(masks, (train, val, test), strict=True):
        mask[rows] = True
    base = toy("graph")
    split = Dataset(
        base.name,
        "graph",
        base.graphs,
        2,
        base.class_names,
        splits=((masks[0], masks[1], masks[2]),),
    )
    clf = estimator("graph").fit(split)
    assert "val_accuracy" in clf.history_[-1]
    assert clf.predict_proba(split).shape == (12, 2)
