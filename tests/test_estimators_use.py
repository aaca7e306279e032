"""Estimators in use: refusals, files, looking inside, new data, communities."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from strategies import complete, path
from training.estimators import data_for, estimator, fitted, graph_data, node_data
from training.toys import SMALL, TASKS, rng_untouched
from vepm import CommunityDetector, GraphClassifier, NodeClassifier
from vepm.data import as_dataset, planted_graph
from vepm.errors import InputError


def no_mask(size: int = 60) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.bool)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y": torch.full((60,), -1)}, "no node has a label"),
        ({"y": torch.full((60,), 2)}, "every labelled node is of class '2'"),
        ({"train_mask": no_mask()}, "there is no labelled node to train on"),
        ({"x": torch.full((60, 6), torch.nan)}, "finite"),
        ({"y": torch.full((60,), 0.5)}, "not an integer"),
    ],
)
def test_nodes_nobody_can_learn_from_are_refused(changes: dict[str, Any], words: str) -> None:
    clf = estimator("node")
    with pytest.raises(InputError, match=words) as caught:
        clf.fit(node_data(**changes))
    assert "\n" not in str(caught.value)
    assert not hasattr(clf, "model_")


def test_graphs_nobody_can_learn_from_are_refused() -> None:
    for label, words in ((-1, "no graph has a label"), (1, "every labelled graph is of class")):
        graphs = graph_data()
        for graph in graphs:
            graph.y = torch.tensor([label])
        with pytest.raises(InputError, match=words):
            estimator("graph").fit(graphs)
    base = as_dataset(graph_data(), "graph")
    nothing = (no_mask(12), no_mask(12), ~no_mask(12))
    with pytest.raises(InputError, match="there is no labelled graph to train on"):
        estimator("graph").fit(dataclasses.replace(base, splits=(nothing,)))


@pytest.mark.parametrize("task", TASKS)
def test_settings_that_cannot_be_are_refused_at_fit(task: str) -> None:
    for options, words in [
        ({"num_communities": 3, "num_metacommunities": 5}, "num_metacommunities must be between"),
        ({"num_communities": 0}, "num_communities must be between"),
        ({"hidden_channels": 1}, "hidden_channels"),
    ]:
        with pytest.raises(InputError, match=words) as caught:
            estimator(task, **options).fit(data_for(task))
        assert "\n" not in str(caught.value)
    kind = NodeClassifier if task == "node" else GraphClassifier
    with pytest.raises(InputError, match="there is no preset 'best'"):
        kind(preset="best").fit(data_for(task))
    with pytest.raises(InputError, match="there is no device 'abacus'"):
        kind(config=SMALL[task], device="abacus").fit(data_for(task))


@pytest.mark.parametrize("call", ["predict", "predict_proba", "transform", "memberships", "score"])
@pytest.mark.parametrize("task", TASKS)
def test_another_feature_width_is_refused(task: str, call: str) -> None:
    data = data_for(task)
    for graph in [data] if task == "node" else data:
        graph.x = graph.x[:, 1:]
    with pytest.raises(InputError, match="features, the model was trained on") as caught:
        getattr(fitted(task), call)(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("task", TASKS)
def test_a_saved_estimator_predicts_the_same(task: str, tmp_path: Path) -> None:
    first, data = fitted(task), data_for(task)
    first.save(tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        "config.toml",
        "model.safetensors",
    ]
    second = type(first).load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(second.classes_, first.classes_)
    for call in ("predict", "predict_proba", "transform"):
        np.testing.assert_array_equal(getattr(second, call)(data), getattr(first, call)(data))
    assert second.score(data) == first.score(data)
    assert second.settings() == first.settings()
    sampled = [clf.predict_proba(data, num_samples=3) for clf in (first, second)]
    np.testing.assert_array_equal(sampled[0], sampled[1])


def test_a_seed_from_numpy_can_be_saved(tmp_path: Path) -> None:
    clf = estimator("node", random_state=np.int64(3)).fit(node_data())
    clf.save(tmp_path)
    assert NodeClassifier.load(tmp_path, device="cpu").random_state == 3


def test_no_seed_draws_one_for_every_fit(tmp_path: Path) -> None:
    clf = estimator("node", random_state=None).fit(node_data())
    first = clf.predict_proba(node_data())
    np.testing.assert_array_equal(clf.predict_proba(node_data()), first)
    clf.save(tmp_path)
    again = NodeClassifier.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(node_data()), first)
    assert clf.random_state is None
    assert clf.fit(node_data()).card_.seed != again.card_.seed


def test_a_random_state_gives_seed_after_seed() -> None:
    def two(state: np.random.RandomState) -> list[int]:
        clf = estimator("node", random_state=state)
        return [clf.fit(node_data()).card_.seed for _ in range(2)]

    seeds = two(np.random.RandomState(5))
    assert seeds == two(np.random.RandomState(5))
    assert seeds[0] != seeds[1]


def test_models_for_something_else_are_refused(tmp_path: Path) -> None:
    fitted("graph").save(tmp_path / "graph")
    for kind in (NodeClassifier, CommunityDetector):
        with pytest.raises(InputError, match="this model labels graphs"):
            kind.load(tmp_path / "graph")
    fitted("node").save(tmp_path / "node")
    with pytest.raises(InputError, match="this model labels nodes; GraphClassifier cannot"):
        GraphClassifier.load(tmp_path / "node")
    CommunityDetector(config=SMALL["node"], device="cpu").fit(node_data()).save(tmp_path / "none")
    with pytest.raises(InputError, match="trained without labels"):
        NodeClassifier.load(tmp_path / "none")
    with pytest.raises(InputError, match="no such file"):
        NodeClassifier.load(tmp_path / "nowhere")


@pytest.mark.parametrize("task", TASKS)
def test_looking_inside(task: str) -> None:
    clf, data = fitted(task), data_for(task)
    graphs = [data] if task == "node" else data
    edges = sum(graph.edge_index.size(1) for graph in graphs)
    split = clf.edge_partition(data)
    assert split.edge_index.shape == (2, edges)
    assert split.share.shape == (edges, 2)
    np.testing.assert_allclose(split.share.sum(1), 1, rtol=1e-5)
    assert split.edge_index.max() < sum(graph.num_nodes for graph in graphs)
    members = [clf.memberships(data)] if task == "node" else clf.memberships(data)
    assert [m.shape for m in members] == [(graph.num_nodes, 4) for graph in graphs]
    assert all((m > 0).all() for m in members)
    assert len(clf.transform(data)) == (60 if task == "node" else 12)


def test_score_is_accuracy_on_labels_that_were_not_used_to_fit(tmp_path: Path) -> None:
    clf, data = fitted("node"), node_data()
    right = clf.predict(data) == data.y.numpy()
    held_out = ~(data.train_mask | data.val_mask)
    assert clf.score(data) == pytest.approx(right[data.test_mask.numpy()].mean())
    everything = {"train_mask": ~no_mask(), "val_mask": no_mask(), "test_mask": ~no_mask()}
    clf.save(tmp_path)
    for model in (clf, NodeClassifier.load(tmp_path, device="cpu")):
        for changes in ({"test_mask": no_mask()}, everything):
            found = model.score(node_data(**changes))
            assert found == pytest.approx(right[held_out.numpy()].mean())
    some = torch.where(torch.arange(60) < 40, data.y, -1)
    found = clf.score(node_data(y=some, test_mask=no_mask()))
    assert found == pytest.approx(right[(held_out & (some >= 0)).numpy()].mean())
    weight = np.arange(60.0)
    found = clf.score(data, sample_weight=weight)
    test = data.test_mask.numpy()
    assert found == pytest.approx(np.average(right[test], weights=weight[test]))
    with pytest.raises(InputError, match="no labels to score against"):
        clf.score(node_data(y=torch.full((60,), -1)))


def test_nodes_that_trained_are_never_scored() -> None:
    data = node_data(train_mask=~no_mask(), val_mask=no_mask(), test_mask=no_mask())
    clf = estimator("node").fit(data)
    with pytest.raises(InputError, match="every labelled node was used to fit"):
        clf.score(data)
    another = node_data(edge_index=data.edge_index[:, :100], test_mask=no_mask())
    right = clf.predict(another) == data.y.numpy()
    assert clf.score(another) == pytest.approx(right.mean())


def test_score_of_graphs_is_accuracy_on_the_labelled_ones() -> None:
    clf, graphs = fitted("graph"), graph_data()
    right = clf.predict(graphs) == np.array([int(graph.y) for graph in graphs])
    assert clf.score(graphs) == pytest.approx(right.mean())
    graphs[0].y = torch.tensor([-1])
    assert clf.score(graphs) == pytest.approx(right[1:].mean())
    for graph in graphs:
        graph.y = None
    with pytest.raises(InputError, match="no labels to score against"):
        clf.score(graphs)


def test_classes_are_matched_by_name_when_scoring() -> None:
    clf, data = fitted("node"), node_data()
    part = node_data(y=torch.where(data.y != 0, data.y, -1), test_mask=no_mask())
    only = (data.y != 0) & ~(data.train_mask | data.val_mask)
    dataset = as_dataset(part, "node")
    assert dataset.class_names == ("1", "2")
    right = clf.predict(data) == data.y.numpy()
    assert clf.score(dataset) == clf.score(part) == pytest.approx(right[only.numpy()].mean())
    unknown = as_dataset(node_data(y=data.y + 1), "node")
    with pytest.raises(InputError, match="'3' is none of the model's classes"):
        clf.score(unknown)


@pytest.mark.parametrize("task", TASKS)
def test_draws_of_a_prediction(task: str) -> None:
    clf, data = fitted(task), data_for(task)
    with rng_untouched():
        mean, again, sampled = (clf.predict_proba(data, num_samples=n) for n in (0, 0, 2))
    np.testing.assert_array_equal(mean, again)
    assert np.abs(mean - sampled).max() > 0
    np.testing.assert_allclose(sampled.sum(1), 1, rtol=1e-5)
    with pytest.raises(InputError, match="num_samples must be between 0 and 1024"):
        clf.predict_proba(data, num_samples=-1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"random_state": 2**64}, "random_state must be between"),
        ({"random_state": -1}, "random_state must be between"),
        ({"device": "meta"}, "there is no device 'meta'"),
    ],
)
def test_seeds_and_devices_that_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        estimator("node").set_params(**given).fit(node_data())


def test_isolated_nodes_are_labelled_too() -> None:
    data = node_data()
    kept = (data.edge_index > 3).all(0)
    data.edge_index = data.edge_index[:, kept]
    found = estimator("node").fit(data).predict_proba(data)
    assert np.isfinite(found).all()
    bare = node_data(edge_index=torch.empty(2, 0, dtype=torch.long))
    assert np.isfinite(estimator("node").fit(bare).predict_proba(bare)).all()


def test_new_nodes_and_graphs_can_be_predicted() -> None:
    other = planted_graph(45, 3, num_features=6, seed=5)
    assert fitted("node").predict(other).shape == (45,)
    assert 0 <= fitted("node").score(other) <= 1
    new = [
        Data(x=torch.rand(g.num_nodes, 3), edge_index=g.edge_index) for g in (path(9), complete(7))
    ]
    assert fitted("graph").predict(new).shape == (2,)
    assert fitted("graph").predict(new[0]).shape == (1,)


def test_progress_hears_of_every_epoch() -> None:
    heard: list[tuple[str, int, int]] = []
    clf = estimator(
        "node", progress=lambda phase, epoch, most, row: heard.append((phase, epoch, most))
    )
    clf.fit(node_data())
    expected = [("pretrain", i + 1, 3) for i in range(3)] + [
        ("finetune", i + 1, 5) for i in range(5)
    ]
    assert heard == expected
    assert len(clf.history_) == 8
