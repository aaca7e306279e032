from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from vepm.data import read
from vepm.errors import InputError


def test_paths_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        read(tmp_path / "nowhere")
    (tmp_path / "graph.xlsx").touch()
    with pytest.raises(InputError, match=r"cannot read '\.xlsx' files"):
        read(tmp_path / "graph.xlsx")


def save_graphml(path: Path) -> Path:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_node("u", label="red", size=1, kind="x", split="train")
    graph.add_node("v", label="blue", size=2, kind="y", split="test")
    graph.add_node("w", size=3)
    graph.add_edge("u", "v", weight=2.0)
    nx.write_graphml(graph, path)
    return path


def test_graphml(tmp_path: Path) -> None:
    dataset = read(save_graphml(tmp_path / "g.graphml"))
    data = dataset.graphs[0]
    assert dataset.class_names == ("blue", "red")
    assert dataset.feature_names == ("size",)
    assert dataset.node_names == (("u", "v", "w"),)
    assert data.y.tolist() == [1, 0, -1]
    assert data.x.tolist() == [[1.0], [2.0], [3.0]]
    assert data.train_mask.tolist() == [True, False, False]
    assert data.test_mask.tolist() == [False, True, False]
    assert data.edge_index.tolist() == [[1, 0], [0, 1]]


def graphml(body: str) -> str:
    return f'<graphml><graph edgedefault="undirected">{body}</graph></graphml>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds 0 graphs"),
        ("not xml", "holds 0 graphs"),
        (graphml('<node id="a"/>')[:-5], "truncated"),
        ("<graphml></graphml>", "holds 0 graphs"),
        ("<graphml><graph/><graph/></graphml>", "holds 2 graphs"),
        (graphml(""), "no nodes"),
        (graphml('<node id="a"><data key="zz">1</data></node>'), "not usable GraphML"),
        (graphml('<node id="a"/>\n<node id="a"/>'), "lists 2 nodes, but ids and edges name 1"),
        (
            graphml('<node id="a"/><edge source="a" target="b"/>'),
            "lists 1 nodes, but ids and edges name 2",
        ),
        ("<!DOCTYPE g [<!ENTITY a 'b'>]>" + graphml('<node id="&a;"/>'), "has a DOCTYPE"),
        (
            '<graphml><key id="k" for="node" attr.name="f" attr.type="double"/><graph>'
            '<node id="a"><data key="k">1</data></node><node id="b"/></graph></graphml>',
            "node 'b', attribute f: the cell is empty",
        ),
        (
            '<graphml><key id="k" for="node" attr.name="f" attr.type="double"/><graph>'
            '<node id="a"><data key="k">1</data></node><node id="b"><data key="k">NaN</data></node>'
            "</graph></graphml>",
            "node 'b', attribute f: the cell is empty",
        ),
        (
            '<graphml><key id="k" for="node" attr.name="label" attr.type="double"/><graph>'
            '<node id="a"><data key="k">1.5</data></node></graph></graphml>',
            "node 'a', attribute label: label '1.5' is not an integer",
        ),
    ],
)
def test_bad_graphml_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "g.graphml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_graphml_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.graphml"
    path.write_bytes(graphml('<node id="é"/>').encode("utf-16"))
    with pytest.raises(InputError, match="not UTF-8"):
        read(path)


def parts(prefix: str, matrix: Any) -> dict[str, Any]:
    csr = sp.csr_matrix(matrix)
    arrays = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr}
    return {prefix + key: value for key, value in (arrays | {"shape": csr.shape}).items()}


TRIANGLE = np.ones((3, 3)) - np.eye(3)


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_npz_with_sparse_features(tmp_path: Path) -> None:
    arrays = parts("adj_", TRIANGLE) | parts("attr_", np.eye(3, 2)) | {"labels": [0, 1, -1]}
    dataset = read(save(tmp_path / "g.npz", **arrays))
    assert dataset.graphs[0].edge_index.size(1) == 6
    assert dataset.graphs[0].x.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert dataset.graphs[0].y.tolist() == [0, 1, -1]


def test_npz_with_dense_features_and_no_labels(tmp_path: Path) -> None:
    arrays = parts("adj_", TRIANGLE) | {"attr_matrix": np.eye(3)}
    dataset = read(save(tmp_path / "g.npz", **arrays))
    assert dataset.num_features == 3
    assert dataset.num_classes == 0


def test_npz_with_overlapping_communities(tmp_path: Path) -> None:
    communities = np.array([[1, 0], [1, 1], [0, 1]])
    arrays = parts("adj_matrix.", TRIANGLE) | parts("labels.", communities)
    data = read(save(tmp_path / "g.npz", **arrays)).graphs[0]
    assert data.memberships.tolist() == communities.tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.eye(2)}, r"array 'adj_data' is missing \(found: x\)"),
        ({"adj_data": np.ones(1)}, "array 'adj_indices' is missing"),
        (parts("adj_", TRIANGLE) | {"adj_indices": np.array([1, 2, 0, 2, 0, 7])}, "cannot be used"),
        (
            parts("adj_", TRIANGLE) | {"adj_indices": np.array([1, 2, 0, 2, 0, -1])},
            "cannot be used",
        ),
        (parts("adj_", TRIANGLE) | {"adj_indptr": np.array([0, 9])}, "cannot be used"),
        (parts("adj_", TRIANGLE) | {"adj_shape": np.array(3)}, "cannot be used"),
        (parts("adj_", np.ones((2, 3))), "must be square"),
        (parts("adj_", TRIANGLE) | {"labels": np.arange(4)}, r"labels are int64 of shape \[4\]"),
        (parts("adj_", TRIANGLE) | {"labels": np.array([0, 0.5, 1])}, "label '0.5'"),
        (parts("adj_", TRIANGLE) | {"attr_matrix": np.ones((2, 2))}, r"shape \[2, 2\]"),
        (parts("adj_", TRIANGLE) | {"attr_matrix": np.array([["a"]] * 3)}, "not all numbers"),
        (parts("adj_", TRIANGLE) | {"labels": np.array([0, {}, 1])}, "allow_pickle"),
        (parts("adj_", TRIANGLE) | parts("labels.", np.eye(2)), "give 3 rows and at most"),
    ],
)
def test_bad_npz_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(save(tmp_path / "g.npz", **arrays))
    assert "\n" not in str(caught.value)


def test_npz_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "g.npz", **parts("adj_", TRIANGLE))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"corrupt|cannot be used"):
        read(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"corrupt|cannot be used"):
        read(path)
    path.write_bytes(b"garbage")
    with pytest.raises(InputError, match=r"corrupt|cannot be used"):
        read(path)
    with path.open("wb") as file:
        np.save(file, np.eye(2))
    with pytest.raises(InputError, match="not an archive"):
        read(path)


def test_what_networkx_warns_of_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "g.graphml"
    path.write_text(
        '<graphml><key id="k" for="node" attr.name="f"/><graph edgedefault="undirected">'
        '<node id="a"><data key="k">1</data></node><node id="b"><data key="k">2</data></node>'
        "</graph></graphml>"
    )
    assert read(path).graphs[0].x.flatten().tolist() == [1.0, 2.0]
    assert [line.partition(": ")[2] for line in caplog.messages] == [
        "No key type for id k. Using string"
    ]


def test_graphml_with_integers_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.graphml"
    for kind in ("int", "long", "string", "double"):
        path.write_text(
            f'<graphml><key id="k" for="node" attr.name="label" attr.type="{kind}"/><graph>'
            f'<node id="a"><data key="k">{"9" * 5000}</data></node></graph></graphml>'
        )
        with pytest.raises(InputError) as caught:
            read(path)
        assert len(str(caught.value)) < 500
