"""Feature columns at prediction: matched by name, whatever order they come in."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from training.estimators import estimator, fitted, node_data
from training.forging import forge
from training.toys import toy
from vepm import NodeClassifier
from vepm.data import Dataset, as_dataset, read
from vepm.data.dataset import with_columns
from vepm.errors import InputError

NAMES = ("age", "income", "height", "weight", "shoe", "visits")
OTHER_ORDER = ("visits", "age", "shoe", "income", "weight", "height")


class Frame:
    """What pandas and polars have in common."""

    def __init__(self, values: np.ndarray, columns: Sequence[Any]) -> None:
        self.values, self.columns = values, columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values.astype(dtype or self.values.dtype)


def columns_of(names: Sequence[str]) -> dict[str, np.ndarray]:
    """Features of the toy by name; a name that it does not have is filled with 0, 1, 2, ...."""
    x = toy("node").graphs[0].x.double().numpy()
    known = dict(zip(NAMES, x.T, strict=True))
    return {name: known.get(name, np.arange(len(x))) for name in names}


def frame(names: Sequence[str], _: Path) -> Any:
    graph = toy("node").graphs[0]
    ones = np.ones(graph.edge_index.size(1))
    adjacency = sp.coo_array((ones, graph.edge_index.numpy()), shape=(60, 60))
    return Frame(np.stack(list(columns_of(names).values()), 1), names), adjacency, graph.y.numpy()


def networkx_graph(names: Sequence[str], _: Path) -> Any:
    source, found = toy("node").graphs[0], columns_of(names)
    graph: nx.Graph[str] = nx.Graph()
    for i, label in enumerate(source.y.tolist()):
        graph.add_node(f"n{i}", label=label, **{name: float(found[name][i]) for name in names})
    graph.add_edges_from((f"n{i}", f"n{j}") for i, j in source.edge_index.t().tolist())
    return graph


def graphml(names: Sequence[str], folder: Path) -> Any:
    path = folder / f"{names[0]}.graphml"
    nx.write_graphml(networkx_graph(names, folder), path)
    return read(path)


def csv_folder(names: Sequence[str], folder: Path) -> Any:
    graph, folder = networkx_graph(names, folder), folder / names[0]
    folder.mkdir()
    header = ("id", *names[:2], "label", *names[2:])
    rows = [[node, *(values[name] for name in header[1:])] for node, values in graph.nodes.items()]
    for name, lines in (
        ("nodes", [header, *rows]),
        ("edges", [("source", "target"), *graph.edges]),
    ):
        (folder / f"{name}.csv").write_text("\n".join(",".join(map(str, row)) for row in lines))
    return read(folder)


SOURCES = (frame, networkx_graph, graphml, csv_folder)
Make = Callable[[Sequence[str], Path], Any]


@pytest.mark.parametrize("make", SOURCES)
def test_another_order_of_columns_gives_the_same_answer(make: Make, tmp_path: Path) -> None:
    first, second = make(NAMES, tmp_path), make(OTHER_ORDER, tmp_path)
    clf = estimator("node").fit(first)
    assert clf.n_features_in_ == 6
    assert clf.feature_names_in_.tolist() == list(NAMES)
    for call in ("predict", "predict_proba", "transform", "memberships"):
        np.testing.assert_array_equal(getattr(clf, call)(second), getattr(clf, call)(first))
    clf.save(tmp_path / "model")
    loaded = NodeClassifier.load(tmp_path / "model", device="cpu")
    assert loaded.feature_names_in_.tolist() == list(NAMES)
    np.testing.assert_array_equal(loaded.predict_proba(second), clf.predict_proba(first))


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize(
    ("names", "words"),
    [
        (NAMES[1:], "'age' missing; give"),
        (("pulse", *NAMES), ": 'pulse' unknown to the model"),
        (("pulse", "rank", *NAMES[2:]), "'age', 'income' missing and 'pulse', 'rank' unknown"),
    ],
)
def test_missing_and_unknown_columns_are_named(
    make: Make, names: Sequence[str], words: str, tmp_path: Path
) -> None:
    clf = estimator("node").fit(make(NAMES, tmp_path))
    with pytest.raises(InputError, match=words) as caught:
        clf.predict(make(names, tmp_path))
    assert "\n" not in str(caught.value)


def test_many_columns_are_counted() -> None:
    wanted = tuple(f"c{i}" for i in range(20))
    given = as_dataset((Frame(np.ones((2, 1)), ["c0"]), np.zeros((2, 2))))
    with pytest.raises(InputError, match=r"'c8' and 11 more missing"):
        with_columns(given, wanted, 20)


def test_sets_of_graphs_are_matched_too() -> None:
    def graphs(names: Sequence[str], odd: Sequence[str]) -> list[Any]:
        found = []
        for i, graph in enumerate([nx.path_graph(5), nx.complete_graph(5)] * 6):
            graph.graph["label"] = i % 2
            for node, values in graph.nodes.items():
                size = {"a": float(node), "b": 10.0 * (i % 2)}
                values |= {name: size[name] for name in (odd if i % 3 else names)}
            found.append(graph)
        return found

    first = graphs("ab", "ab")
    clf = estimator("graph").fit(first)
    for other in (graphs("ba", "ba"), graphs("ab", "ba"), graphs("ba", "ab")):
        np.testing.assert_array_equal(clf.predict_proba(other), clf.predict_proba(first))


def test_sparse_columns_are_matched() -> None:
    x = torch.arange(12.0).view(4, 3).to_sparse_coo()
    edges = torch.empty(2, 0, dtype=torch.long)
    graph = Data(x=x, edge_index=edges, y=torch.full((4,), -1))
    given = Dataset("data", "node", [graph], 0, (), feature_names=("a", "b", "c"))
    found = with_columns(given, ("c", "a", "b"), 3).graphs[0].x
    assert found.is_coalesced()
    assert found.to_dense().equal(x.to_dense()[:, [2, 0, 1]])
    assert graph.x is x


def test_without_names_columns_are_matched_by_position(caplog: pytest.LogCaptureFixture) -> None:
    named, bare = as_dataset(frame(NAMES, Path())), node_data()
    clf = estimator("node").fit(bare)
    assert not hasattr(clf, "feature_names_in_")
    with caplog.at_level(logging.WARNING, "vepm"):
        found = clf.predict_proba(bare)
        assert not caplog.messages
        np.testing.assert_array_equal(clf.predict_proba(named), found)
        assert "the model has no column names" in caplog.messages[0]
        clf.score(named)
        assert len(caplog.messages) == 2
    caplog.clear()
    clf.fit(named)
    with caplog.at_level(logging.WARNING, "vepm"):
        clf.predict_proba(bare)
    assert "the data have no column names" in caplog.messages[0]
    clf.fit(bare)
    assert not hasattr(clf, "feature_names_in_")


def test_models_saved_without_names_predict_by_position(tmp_path: Path) -> None:
    named = as_dataset(frame(NAMES, Path()))
    clf = estimator("node").fit(named)
    clf.save(tmp_path)
    forge(tmp_path / "model.safetensors", lambda tensors, header: header.pop("feature_names"))
    old = NodeClassifier.load(tmp_path, device="cpu")
    assert old.card_.feature_names is None
    np.testing.assert_array_equal(old.predict_proba(named), clf.predict_proba(named))


def test_features_and_their_absence_are_not_mixed_up(tmp_path: Path) -> None:
    graph = networkx_graph(NAMES, tmp_path)
    bare = networkx_graph((), tmp_path)
    with pytest.raises(InputError, match="graph has no features, the model needs 'age', 'income'"):
        estimator("node").fit(graph).predict(bare)
    with pytest.raises(InputError, match="trained without features; leave out 'age', 'income'"):
        estimator("node").fit(bare).predict(graph)


def test_columns_of_one_name_are_refused() -> None:
    adjacency = np.zeros((2, 2))
    with pytest.raises(InputError, match="each its own; rename them"):
        as_dataset((Frame(np.ones((2, 3)), ["a", "b", "a"]), adjacency))
    with pytest.raises(InputError, match="names of text"):
        as_dataset((Frame(np.ones((2, 2)), ["a", 1]), adjacency))
    assert as_dataset((Frame(np.ones((2, 2)), [0, 1]), adjacency)).feature_names is None
    with pytest.raises(InputError, match="node 1, column b: the cell is empty"):
        as_dataset((Frame(np.array([[1, 2], [3, np.nan]]), ["a", "b"]), adjacency))


def test_a_fitted_model_without_names_takes_nameless_data_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for task in ("node", "graph"):
        fitted(task).predict(toy(task))
    assert not caplog.messages
