"""More formats: separators, edge lists and SciPy's own archives."""

import logging
import os
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from vepm.data import load, read
from vepm.errors import InputError


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_cells_may_be_separated_by_commas_semicolons_or_tabs(
    separator: str, tmp_path: Path
) -> None:
    nodes = ["id,label,size", "a,x,1", 'b,y,"2"', "c,,3"]
    (tmp_path / "nodes.csv").write_text("\n".join(nodes).replace(",", separator))
    (tmp_path / "edges.csv").write_text("source,target\na,b\n".replace(",", separator))
    dataset = read(tmp_path)
    assert dataset.class_names == ("x", "y")
    assert dataset.graphs[0].x.tolist() == [[1], [2], [3]]


def test_semicolons_allow_decimal_commas(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id;size;note\na;1,5;x, y\nb;-2,25e1;x, y\nc;3;z\n")
    (tmp_path / "edges.csv").write_text("source;target\na;b\n")
    dataset = read(tmp_path)
    assert dataset.feature_names == ("size", "note=x, y", "note=z")
    assert dataset.graphs[0].x[:, 0].tolist() == [1.5, -22.5, 3.0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.edgelist", "# a comment\na b {}\nb c {'weight': 2}\n"),
        ("g.txt", "% another\n\na\tb\nb, c, 0.5\n"),
        ("g.tsv", "a\tb\nb\tc\n"),
        ("g.tsv", "target\tsource\tweight\nb\ta\t1\nc\tb\t2\n"),
    ],
)
def test_lists_of_edges(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    dataset = read(tmp_path / name)
    assert dataset.name == "g"
    assert dataset.node_names == (("a", "b", "c"),)
    assert dataset.graphs[0].edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [("a b\nc\n", "row 2: 'c' is not an edge"), ("# none\n", "holds no edges"), (", a\n", "row 1")],
)
def test_odd_lists_of_edges_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "g.txt")


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
def test_what_scipy_saves(kind: Any, tmp_path: Path) -> None:
    matrix: Any = sp.random_array((6, 6), density=0.4, random_state=0, format="csr")
    sp.save_npz(tmp_path / "g.npz", kind(matrix))
    expected = ((matrix + matrix.T).toarray() != 0) & ~np.eye(6, dtype=bool)
    row, col = read(tmp_path / "g.npz").graphs[0].edge_index.numpy()
    found = np.zeros((6, 6), dtype=bool)
    found[row, col] = True
    np.testing.assert_array_equal(found, expected)


def test_scipy_matrices_without_rows_are_refused(tmp_path: Path) -> None:
    for layout in ("dia", "csc", "coo"):
        sp.save_npz(tmp_path / "g.npz", sp.csr_array(np.eye(3)).asformat(layout))
        with pytest.raises(InputError, match=rf"a {layout} matrix; save it after \.tocsr"):
            read(tmp_path / "g.npz")


TRIANGLE = sp.csr_matrix(np.ones((3, 3)) - np.eye(3))
ADJACENCY: dict[str, Any] = {
    "adj_data": TRIANGLE.data,
    "adj_indices": TRIANGLE.indices,
    "adj_indptr": TRIANGLE.indptr,
    "adj_shape": TRIANGLE.shape,
}


ONE_MEMBER: dict[str, Any] = {
    "labels.indices": np.zeros(1, int),
    "labels.indptr": np.array([0, 1, 1, 1]),
    "labels.shape": np.array([3, 2]),
}


def test_masks_of_an_npz(tmp_path: Path) -> None:
    masks = np.array([[1, 0, 0], [0, 1, 0]], dtype=bool)
    arrays = ADJACENCY | {"labels": np.array([0, 1, 1]), "train_masks": masks}
    np.savez(tmp_path / "g.npz", **arrays, test_mask=np.array([0, 0, 1]))
    dataset = read(tmp_path / "g.npz")
    assert dataset.splits is not None
    assert [split[0].tolist() for split in dataset.splits] == masks.tolist()
    assert dataset.splits[1][2].tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("arrays", "result"),
    [
        ({"adj_data": np.ones(6, np.float16)}, None),
        ({"adj_data": np.ones(6, np.longdouble)}, None),
        ({"attr_matrix": np.eye(3, dtype=np.float16)}, None),
        ({"attr_matrix": np.eye(3, dtype=np.longdouble)}, None),
        ({"labels": np.array([b"a", b"b", b"a"])}, None),
        ({"labels": np.array(["a", "b", "a"])}, None),
        ({"adj_data": np.array(["1"] * 6)}, "values are"),
        ({"adj_data": np.ones(6, complex)}, "values are"),
        ({"adj_shape": np.array([3.5, 3])}, "values are"),
        ({"attr_matrix": np.array([["1"]] * 3)}, "not all numbers"),
        ({"labels": np.ones(3, complex)}, "one integer or text"),
        ({"labels": np.array([2**64 - 1] * 3, np.uint64)}, None),
        ({"labels": np.array(["9" * 5000] * 3)}, "not an integer from 0"),
        ({"train_mask": np.array(["x"] * 3)}, "True and False are needed"),
        ({"edge_kind": np.ones(6)}, "give a bit mask"),
        ({"edge_kind": np.ones(5, np.uint8)}, "give a bit mask"),
        ({"directed": np.array([True, False])}, "directed is bool"),
        ({"directed": np.array("yes")}, "directed is <U3"),
        ({"labels.data": np.array([1e300]), **ONE_MEMBER}, "negative or infinite entries"),
        ({"labels.data": np.array([-1.0]), **ONE_MEMBER}, "negative or infinite entries"),
    ],
)
def test_types_of_arrays(arrays: Any, result: str | None, tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **(ADJACENCY | arrays))
    if result is None:
        assert read(tmp_path / "g.npz").graphs[0].edge_index.size(1) == 6
    else:
        with pytest.raises(InputError, match=result):
            read(tmp_path / "g.npz")


def test_what_is_not_used_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "edges.csv").write_text("source,target,weight,since\na,b,2,2020\n")
    with caplog.at_level(logging.WARNING, "vepm"):
        read(tmp_path)
    assert caplog.messages == [f"{tmp_path / 'edges.csv'}: not used: edge column 'since'"]
    caplog.clear()
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edge("a", "b", weight=2.0)
    nx.write_graphml(graph, tmp_path / "g.graphml")
    read(tmp_path / "g.graphml")
    (line,) = caplog.messages
    assert line.endswith("not used: the direction of edges")
    caplog.clear()
    np.savez(tmp_path / "g.npz", **(ADJACENCY | {"adj_data": np.full(6, 2), "when": np.ones(3)}))
    read(tmp_path / "g.npz")
    (line,) = caplog.messages
    assert line.endswith("not used: array 'when'")


def test_pipes_and_unknown_home_folders_are_refused(tmp_path: Path) -> None:
    for name in ("g.npz", "edges.csv", "g.graphml"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(InputError, match="not a regular file"):
            read(tmp_path / name)
    with pytest.raises(InputError, match="not a regular file"):
        read(tmp_path)
    for call in (read, lambda path: load("Cora", path)):
        with pytest.raises(InputError, match="no such home folder"):
            call("~nobody-of-this-name/x.csv")


def test_small_archives_do_not_take_gigabytes(tmp_path: Path) -> None:
    """What is about to be allocated is what counts, not the size of the file."""
    wide: dict[str, Any] = {"labels.data": np.ones(1), "labels.indices": np.zeros(1, int)}
    wide |= {"labels.indptr": np.array([0, 1, 1, 1]), "labels.shape": np.array([3, 4 * 10**7])}
    np.savez_compressed(tmp_path / "wide.npz", **(ADJACENCY | wide))
    with pytest.raises(InputError, match="at most 100000000 entries"):
        read(tmp_path / "wide.npz")
    many = 2 * 10**6
    lonely: dict[str, Any] = {
        "adj_indptr": np.full(many + 1, 6, np.int32),
        "adj_shape": np.array([many, many]),
    }
    lonely["adj_indptr"][:3] = [0, 2, 4]
    np.savez_compressed(tmp_path / "lonely.npz", **(ADJACENCY | lonely))
    with pytest.raises(InputError, match="2000000 nodes and only 6 edges"):
        read(tmp_path / "lonely.npz")


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("nodes=100000000000", "GiB"),
        ("nodes=1000000000000000", "less than 1e15"),
        (f"nodes={'9' * 5000}", "give a number"),
        ("nodes=1000,features=100000000000", "GiB"),
        (f"seed={2**64}", "less than 1e15"),
    ],
)
@pytest.mark.parametrize("name", ["planted", "planted-relations"])
def test_huge_recipes_are_refused(name: str, recipe: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load(f"{name}:{recipe}")
    assert len(str(caught.value)) < 400


def test_an_archive_may_list_its_edges(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "graph.npz",
        edges=np.array([[0, 1], [1, 2]]),
        node_features=np.array([[0.5], [1.5], [2.5]]),
        node_labels=np.array([0, 1, 1]),
    )
    graph = read(tmp_path / "graph.npz").graphs[0]
    assert sorted(graph.edge_index.t().tolist()) == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert graph.x.tolist() == [[0.5], [1.5], [2.5]]
    assert graph.y.tolist() == [0, 1, 1]
