from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.datasets import KarateClub

from vepm.data import (
    Dataset,
    as_dataset,
    dataset,
    labels,
    load,
    read,
    require_labels,
)
from vepm.data.build import FEW_NODES, MOST_GAPS
from vepm.data.generate import draw_split
from vepm.errors import InputError

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def labelled(y: list[int], **more: Any) -> Data:
    return Data(x=torch.ones(3, 2), edge_index=PATH, y=torch.tensor(y), **more)


def test_a_dataset_comes_back_as_it_is() -> None:
    dataset = load("KarateClub")
    assert as_dataset(dataset) is dataset
    with pytest.raises(InputError, match="is a node task, not a graph task"):
        as_dataset(dataset, "graph")


def test_a_pyg_graph_is_a_node_task() -> None:
    dataset = as_dataset(labelled([7, 3, -1]))
    assert (dataset.task, dataset.num_classes, dataset.class_names) == ("node", 2, ("3", "7"))
    assert dataset.graphs[0].y.tolist() == [1, 0, -1]
    assert dataset.graphs[0].train_mask.tolist() == [True, True, False]


def test_known_classes_fix_the_indices() -> None:
    dataset = as_dataset(labelled([7, 7, -1]), class_names=("3", "7"))
    assert dataset.graphs[0].y.tolist() == [1, 1, -1]
    assert dataset.num_classes == 2
    with pytest.raises(InputError, match="label '7' is none of the known classes"):
        as_dataset(labelled([7, 7, -1]), class_names=("3", "4"))


def test_integers_are_indices_of_classes_with_names() -> None:
    dataset = as_dataset(labelled([1, 0, -1]), class_names=("cat", "dog"))
    assert dataset.graphs[0].y.tolist() == [1, 0, -1]
    assert dataset.class_names == ("cat", "dog")
    with pytest.raises(InputError, match="label '2' is none of"):
        as_dataset(labelled([1, 2, -1]), class_names=("cat", "dog"))


def test_text_that_looks_like_a_number_may_be_the_name_of_a_class() -> None:
    dataset = as_dataset((None, A, ["01", "01", ""]), class_names=("01", "cat"))
    assert dataset.graphs[0].y.tolist() == [0, 0, -1]


def test_a_pyg_dataset_of_one_graph_is_a_node_task() -> None:
    dataset = as_dataset(KarateClub())
    assert dataset.task == "node"
    assert dataset.graphs[0].y.equal(KarateClub()[0].y)


def test_masks_of_many_splits() -> None:
    train = torch.tensor([[True, False], [False, True], [False, False]])
    test = torch.tensor([False, False, True])
    dataset = as_dataset(labelled([0, 1, 1], train_mask=train, test_mask=test))
    assert dataset.splits is not None
    assert [split[0].tolist() for split in dataset.splits] == train.t().tolist()
    assert [split[2].tolist() for split in dataset.splits] == [test.tolist()] * 2
    assert dataset.graphs[0].train_mask.equal(train[:, 0])
    with pytest.raises(InputError, match="different numbers of splits"):
        as_dataset(labelled([0, 1, 1], train_mask=train, val_mask=torch.zeros(3, 3)))


def test_a_list_of_pyg_graphs_is_a_graph_task() -> None:
    graphs = [labelled([5]), labelled([2]), Data(x=torch.ones(1, 2), edge_index=PATH[:, :0])]
    dataset = as_dataset(graphs)
    assert dataset.task == "graph"
    assert [graph.y.tolist() for graph in dataset.graphs] == [[1], [0], [-1]]
    assert as_dataset(graphs[0]).task == "graph"
    assert len(as_dataset(Batch.from_data_list(graphs[:2])).graphs) == 2
    assert as_dataset([labelled([0, 1, 1])]).task == "node"


def test_graphs_without_features_get_degrees() -> None:
    dataset = as_dataset([Data(edge_index=PATH, y=torch.tensor([i])) for i in range(2)])
    assert dataset.feature_names == ("one", "log_degree")
    assert dataset.num_features == 2


def test_networkx_node_task() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_node("b", label="x", size=1, vec=[0.0, 2.0], note="ignored")
    graph.add_node("a", label=None, size=2.5, vec=[1.0, 3.0])
    graph.add_edge("b", "a")
    dataset = as_dataset(graph)
    assert dataset.node_names == (("b", "a"),)
    assert dataset.feature_names == ("size", "vec_0", "vec_1")
    assert dataset.graphs[0].x.tolist() == [[1.0, 0.0, 2.0], [2.5, 1.0, 3.0]]
    assert dataset.graphs[0].y.tolist() == [0, -1]
    with pytest.raises(InputError, match="missing reverse"):
        as_dataset(graph, strict=True)


def test_text_attributes_of_networkx_are_used_only_if_asked_for(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The ``club`` of the karate club is what a model is to find, not a feature."""
    graph = nx.karate_club_graph()
    nx.write_graphml(graph, tmp_path / "g.graphml")
    for plain in (as_dataset(graph), read(tmp_path / "g.graphml")):
        assert plain.num_positions == 16
        assert plain.num_classes == 0
    assert "not used: column 'club' (text: name it in features" in caplog.messages[0]
    labelled = as_dataset(graph, label="club")
    assert labelled.class_names == ("Mr. Hi", "Officer")
    assert labelled.graphs[0].y.bincount().tolist() == [17, 17]
    assert labelled.feature_names == plain.feature_names
    asked = as_dataset(graph, features=["club"])
    assert asked.feature_names == ("club=Mr. Hi", "club=Officer")
    # A model that knows the attribute finds it again.
    assert as_dataset(graph, feature_names=asked.feature_names).feature_names == asked.feature_names
    with pytest.raises(InputError, match="no attribute 'team' with labels"):
        as_dataset(graph, label="team")


@pytest.mark.parametrize("options", [{"label": "club"}, {"features": ["club"]}])
def test_columns_without_names_cannot_be_asked_for(options: Any) -> None:
    for data in (labelled([0, 1, 1]), (torch.ones(3, 2), np.ones((3, 3)))):
        with pytest.raises(InputError, match=r"no names to choose|there are none with a name"):
            as_dataset(data, **options)


def test_an_attribute_y_beside_labels_may_be_a_coordinate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph = nx.path_graph(6)
    for i in graph:
        graph.nodes[i].update(x=float(i), y=float(i * i), label="ab"[i % 2])
    assert as_dataset(graph).feature_names == ("x",)
    assert "attribute 'y' (perhaps the labels again: name 'label'" in caplog.messages[0]
    assert as_dataset(graph, label="label").feature_names == ("x", "y")
    assert as_dataset(graph, features=["y"]).feature_names == ("y",)
    assert len(caplog.messages) == 1
    with pytest.raises(InputError, match="found: x, y, label"):
        as_dataset(graph, label="team")


def test_networkx_graph_task() -> None:
    graphs = [nx.path_graph(3), nx.complete_graph(4), nx.empty_graph(1)]
    for graph, label in zip(graphs, ("tree", "clique", None), strict=True):
        graph.graph["label"] = label
    dataset = as_dataset(graphs)
    assert dataset.class_names == ("clique", "tree")
    assert [graph.y.tolist() for graph in dataset.graphs] == [[1], [0], [-1]]
    assert dataset.node_names is not None
    assert dataset.node_names[0] == ("0", "1", "2")
    assert "train_mask" not in dataset.graphs[0]
    graphs[0].nodes[0]["f"] = graphs[0].nodes[1]["f"] = graphs[0].nodes[2]["f"] = 1
    with pytest.raises(InputError, match="different node attributes"):
        as_dataset(graphs)


A = np.array([[0, 1, 0], [1, 0, 2.5], [0, 2.5, 0]])


@pytest.mark.parametrize("adjacency", [A, sp.csr_matrix(A), sp.coo_array(A), A.tolist()])
@pytest.mark.parametrize("features", [np.eye(3, 2), sp.csr_matrix(np.eye(3, 2)), torch.eye(3, 2)])
def test_matrices(adjacency: Any, features: Any) -> None:
    dataset = as_dataset((features, adjacency, ["b", None, "a"]))
    data = dataset.graphs[0]
    assert data.edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert data.x.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert data.y.tolist() == [1, -1, 0]


@pytest.mark.parametrize("obj", [(None, A), (np.eye(3), A, None), (None, A, np.full(3, -1))])
def test_matrices_without_labels(obj: Any) -> None:
    dataset = as_dataset(obj)
    assert dataset.num_classes == 0
    assert dataset.graphs[0].y.tolist() == [-1, -1, -1]


def test_explicit_zeros_are_no_edges() -> None:
    matrix = sp.coo_array((np.array([1.0, 1.0, 0.0]), ([0, 1, 2], [1, 0, 1])), shape=(3, 3))
    assert as_dataset((None, matrix)).graphs[0].edge_index.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("obj", "task", "message"),
    [
        (labelled([0, 1, 1]), "edge", "task is 'edge'"),
        ("Cora", None, "vepm.data.load"),
        (42, None, "cannot use int"),
        (torch.ones(3), None, "cannot use Tensor"),
        ([], None, "cannot use an empty list"),
        ([1, 2], None, "cannot use int"),
        ([labelled([0]), nx.path_graph(2)], None, "cannot use Data, Graph"),
        (HeteroData(), None, "HeteroData"),
        ([labelled([0]), labelled([1])], "node", "a node task is one graph, not 2"),
        (labelled([1]), "node", r"y is \[1\] for 3 nodes"),
        ([labelled([0, 1, 1]), labelled([1])], None, r"graph 0: y is \[3\]"),
        (
            [labelled([0]), Data(edge_index=PATH)],
            None,
            r"graph 1 holds columns {} and graph 0 {'x': \[2\]}",
        ),
        (
            [labelled([0]), Data(x=torch.ones(3, 5), edge_index=PATH, y=torch.tensor([1]))],
            None,
            r"graph 1 holds columns {'x': \[5\]} and graph 0 {'x': \[2\]}",
        ),
        (
            [labelled([0], edge_weight=torch.ones(4)), labelled([1])],
            None,
            r"graph 1 holds columns {'x': \[2\]} and graph 0 {'x': \[2\], 'edge_weight': \[\]}",
        ),
        (labelled([0, 1, 1], val_mask=torch.zeros(3, 0)), None, r"val_mask: is \[3, 0\]"),
        (labelled([0, 1, 1], val_mask=torch.ones(3, 1, 1)), None, r"is \[3, 1, 1\]; a tensor"),
        (labelled([0, 1, 1], val_mask=torch.ones(4)), None, r"is \[4\]; .* per node \(\[3\]"),
        (labelled([0, 1, 1], val_mask=[True] * 3), None, "val_mask: is list; a tensor"),
        (labelled([0, 1, 1], val_mask=2 * torch.ones(3)), None, "other than 0 and 1"),
        (labelled([0, -2, 1]), None, "label '-2' is not an integer from 0"),
        ((None, A), "graph", "is one graph"),
        ((None, np.ones((2, 3))), None, "must be square"),
        ((None, np.ones((0, 0))), None, "the graph has no nodes"),
        ((None, np.array([["a"]])), None, "column of numbers per node"),
        ((None, np.full((2, 2), np.nan)), None, "edge from 0 to 0: the weight is nan"),
        ((np.eye(2), A), None, r"shape \[2, 2\]"),
        ((np.array([[1], ["x"], [None]], dtype=object), A), None, "not all numbers"),
        ((np.full((3, 1), np.nan), A), None, "node 0, column 0 is nan"),
        ((np.full((3, 1), "x"), A), None, "not all numbers"),
        ((np.eye(3), A, [0, 1]), None, r"labels are int64 of shape \[2\]"),
        ((np.eye(3), A, [0, 0.5, 1]), None, "label 1: label '0.5' is not an integer"),
        ((np.eye(3), A, ["1", "0.5", "1"]), None, "label 1: label '0.5'"),
        (nx.Graph(), None, "no nodes"),
    ],
)
def test_what_cannot_be_used_is_refused(obj: Any, task: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        as_dataset(obj, task)
    assert "\n" not in str(caught.value)


def test_networkx_attributes_must_agree() -> None:
    graph = nx.path_graph(2)
    graph.nodes[0]["f"] = [1.0, 2.0]
    graph.nodes[1]["f"] = [1.0]
    with pytest.raises(InputError, match="node '1', attribute f: 1 numbers, not 2"):
        as_dataset(graph)


def test_require_labels() -> None:
    require_labels(as_dataset(labelled([0, 1, -1])))
    with pytest.raises(InputError, match="no node has a label"):
        require_labels(as_dataset(labelled([-1, -1, -1])))
    with pytest.raises(InputError, match="every labelled node is of class '4'"):
        require_labels(as_dataset(labelled([4, -1, 4])))
    with pytest.raises(InputError, match="no graph has a label"):
        require_labels(as_dataset([Data(edge_index=PATH)] * 2))


def test_datasets_are_compared_by_identity() -> None:
    first, second = load("KarateClub"), load("KarateClub")
    assert isinstance(first, Dataset)
    assert first != second


@pytest.mark.parametrize(
    ("word", "name"),
    [
        *(("+3", "3"), ("7.0", "7"), ("1e17", "1" + 17 * "0"), ("9" * 30, "9" * 30)),
        *(("1.5", None), ("9" * 5000, None), ("-2", None), ("nan", None)),
    ],
)
def test_integers_as_text(word: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(InputError, match=f"y, 1: label '{word[:40]}' is not an integer"):
            labels.encode(["0", word], 2, lambda i: f"y, {i}", "y")
    else:
        found, names = labels.encode(["-1", word, ""], 3, str, "y")
        assert (found.tolist(), names) == ([-1, 0, -1], (name,))


def test_the_first_eight_classes_are_named() -> None:
    for count, end in ((8, r"6, 7\)"), (9, r"6, 7, \.\.\.\)")):
        known = [str(i) for i in range(count)]
        with pytest.raises(InputError, match=f"^row 1: label '20' is none of .*{end}$"):
            labels.encode([0, 20], 2, lambda i: f"row {i}", "y", known)
    names = [*"abcdefghi"]
    assert dataset.listed_names(names[:8]).endswith("'g', 'h'")
    assert dataset.listed_names(names).endswith("'g', 'h' and 1 more")


def test_labels_may_be_a_column_and_of_any_type() -> None:
    for given in ([[1], [0], [1]], np.array([True, False, True]), torch.tensor([1, 0, 1]).half()):
        found, names = labels.encode(given, 3, str, "y")
        assert (found.tolist(), names) == ([1, 0, 1], ("0", "1"))
    with pytest.raises(InputError, match=r"of shape \[3, 2\]; one integer or text each \(\[3\]\)"):
        labels.encode(np.ones((3, 2)), 3, str, "y")
    with pytest.raises(InputError, match=r"labels are complex128 .* one integer or text"):
        labels.encode(np.ones(3) * 1j, 3, str, "y")


@pytest.mark.parametrize(
    ("cell", "answer"),
    [
        *((1, True), ("1e3", True), ((1, 2.5), True), (np.ones((2, 2)), True)),
        *(((), False), ([1, "a"], False), ("a", False), (None, False), (10**400, False)),
    ],
)
def test_what_counts_as_a_number(cell: Any, answer: bool) -> None:
    assert labels.is_number(cell) is answer


def test_random_splits() -> None:
    y = torch.tensor([0] * 10 + [1] * 5 + [-1] * 4 + [2] * 2)
    train, val, test = draw_split(y, per_class=3, num_val=4, seed=1)
    assert y[train].bincount().tolist() == [3, 3, 2]
    assert (int(val.sum()), int(test.sum())) == (4, 5)
    assert ((train.int() + val.int() + test.int()) == (y >= 0).int()).all()
    other = draw_split(y, per_class=3, num_val=4, seed=2)
    assert not train.equal(other[0])
    assert train.equal(draw_split(y, per_class=3, num_val=4, seed=1)[0])


def test_nodes_are_counted_by_what_the_graph_says_first() -> None:
    edges = torch.tensor([[0, 5], [1, 2]])
    for graph, count in (
        (Data(x=torch.ones(7, 1), edge_index=edges), 7),
        (Data(edge_index=edges, num_nodes=9), 9),
        (Data(edge_index=edges, y=torch.zeros(8)), 8),
        (Data(edge_index=edges), 6),
    ):
        assert as_dataset(graph).labels.numel() == count
    assert as_dataset(Data(edge_index=edges, y=torch.zeros(1))).graphs[0].x.size(0) == 6
    with pytest.raises(InputError, match="the graph has no nodes"):
        as_dataset(Data(edge_index=edges[:, :0]))
    with pytest.raises(InputError, match="graph '1' has no nodes"):
        as_dataset([Data(edge_index=edges), Data(edge_index=edges[:, :0])])
    last = max(FEW_NODES, MOST_GAPS * 2)
    with pytest.raises(InputError, match=f"{last + 1} nodes and only 1 edges"):
        as_dataset(Data(edge_index=torch.tensor([[0], [last]])))


def test_edges_of_one_graph_cannot_lead_to_another() -> None:
    graphs = [labelled([0]), Data(x=torch.ones(3, 2), edge_index=PATH - 1, y=torch.tensor([1]))]
    with pytest.raises(InputError, match="edge from 2 to 3: the edge joins nodes of two graphs"):
        as_dataset(graphs)
