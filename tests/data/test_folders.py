import csv
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vepm.data import read
from vepm.errors import InputError

NODES = "id,label,split,size\na,cat,train,1\nb,dog,val,2.5\nc,,test,-3e2\nd,dog,,0\n"
EDGES = "source,target,weight\na,b,1\nb,a,1\nb,c,9\n"


def write(folder: Path, **files: str | None) -> Path:
    for name, text in files.items():
        if text is not None:
            (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def test_a_node_task(tmp_path: Path) -> None:
    dataset = read(write(tmp_path, nodes=NODES, edges=EDGES))
    data = dataset.graphs[0]
    assert dataset.task == "node"
    assert dataset.name == tmp_path.name
    assert dataset.class_names == ("cat", "dog")
    assert dataset.feature_names == ("size",)
    assert dataset.node_names == (("a", "b", "c", "d"),)
    assert data.edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert data.x.tolist() == [[1.0], [2.5], [-300.0], [0.0]]
    assert data.y.tolist() == [0, 1, -1, 1]
    assert data.train_mask.tolist() == [True, False, False, False]
    assert data.val_mask.tolist() == [False, True, False, False]
    assert data.test_mask.sum() == 0


def test_integer_labels_sort_as_numbers_and_minus_one_is_unlabelled(tmp_path: Path) -> None:
    nodes = "id,label\na,10\nb,9\nc,-1\nd,2.0\n"
    dataset = read(write(tmp_path, nodes=nodes, edges="source,target\na,b\n"))
    assert dataset.class_names == ("2", "9", "10")
    assert dataset.graphs[0].y.tolist() == [2, 1, -1, 0]


def test_known_classes_fix_the_indices(tmp_path: Path) -> None:
    folder = write(tmp_path, nodes=NODES, edges=EDGES)
    assert read(folder, class_names=["dog", "cow", "cat"]).graphs[0].y.tolist() == [2, 0, -1, 0]
    with pytest.raises(InputError, match=r"row 3, column label: label 'dog' is none of"):
        read(folder, class_names=["cat", "cow"])


def test_huge_and_odd_ids_stay_text(tmp_path: Path) -> None:
    nodes = 'id\n1000000000000000001\n1000000000000000000\n"é, ü"\n'
    edges = 'source,target\n1000000000000000000,"é, ü"\n'
    dataset = read(write(tmp_path, nodes=nodes, edges=edges))
    assert dataset.node_names == (("1000000000000000001", "1000000000000000000", "é, ü"),)
    assert dataset.graphs[0].edge_index.tolist() == [[2, 1], [1, 2]]
    assert dataset.feature_names is not None
    assert dataset.feature_names[:2] == ("one", "log_degree")


@pytest.mark.parametrize("as_file", [False, True])
def test_edges_alone(tmp_path: Path, as_file: bool) -> None:
    folder = write(tmp_path, edges="target,source\nb,a\nc,b\n")
    dataset = read(folder / "edges.csv" if as_file else folder)
    assert dataset.node_names == (("a", "b", "c"),)
    assert dataset.num_classes == 0
    assert dataset.num_features == 18
    assert dataset.graphs[0].train_mask.sum() == 0


def test_a_byte_order_mark_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    dataset = read(write(tmp_path, edges="\ufeffsource,target\n\na,b\n,\n"))
    assert dataset.node_names == (("a", "b"),)


GRAPHS = "id,label,split\ng1,yes,train\ng2,no,test\n"
GRAPH_NODES = "id,graph,f\nx,g2,1\na,g1,2\ny,g2,3\nb,g1,4\n"
GRAPH_EDGES = "source,target\nx,y\na,b\n"


def test_a_graph_task(tmp_path: Path) -> None:
    dataset = read(write(tmp_path, graphs=GRAPHS, nodes=GRAPH_NODES, edges=GRAPH_EDGES))
    first, second = dataset.graphs
    assert dataset.task == "graph"
    assert dataset.class_names == ("no", "yes")
    assert dataset.graph_names == ("g1", "g2")
    assert dataset.node_names == (("a", "b"), ("x", "y"))
    assert (first.x.tolist(), second.x.tolist()) == ([[2.0], [4.0]], [[1.0], [3.0]])
    assert first.edge_index.tolist() == second.edge_index.tolist() == [[1, 0], [0, 1]]
    assert (first.y.tolist(), second.y.tolist()) == ([1], [0])
    assert dataset.splits is not None
    assert [mask.tolist() for mask in dataset.splits[0]] == [
        [True, False],
        [False, False],
        [False, True],
    ]


def test_a_graph_task_without_features(tmp_path: Path) -> None:
    nodes = "id,graph\nx,g2\na,g1\ny,g2\nb,g1\n"
    dataset = read(write(tmp_path, graphs=GRAPHS, nodes=nodes, edges=GRAPH_EDGES))
    assert dataset.feature_names == ("one", "log_degree")
    assert dataset.num_features == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"edges\.csv: no such file"),
        ({"edges": ""}, "the file is empty"),
        ({"edges": "source,target\n"}, "header but no rows"),
        ({"edges": "source\na\n"}, r"column 'target' is missing \(found: source\)"),
        ({"edges": "source,target,source\na,b,c\n"}, "column 'source' is repeated"),
        ({"edges": "source,target\na,b\nc\n"}, "row 3: 1 cells where the header has 2"),
        ({"edges": "source,target\na\nb,c\n"}, "row 2: 1 cells where the header has 2"),
        ({"edges": "source,target\na,\n"}, "row 2: an end is empty"),
        ({"edges": 'source,target\na,"b\n'}, "not CSV"),
        ({"edges": EDGES, "nodes": ""}, r"nodes\.csv: the file is empty"),
        (
            {"edges": EDGES, "graphs": "id,label\ng,1\n", "nodes": "id,graph,split\na,g,test\n"},
            r"column 'split' belongs in graphs\.csv",
        ),
        ({"edges": EDGES, "nodes": "id,label\n"}, r"nodes\.csv: the file has a header but no rows"),
        ({"edges": EDGES, "nodes": "name\na\n"}, r"nodes\.csv: column 'id' is missing"),
        ({"edges": EDGES, "nodes": "id\na\nb\n"}, r"edges\.csv, row 4, column target: node 'c'"),
        (
            {"edges": EDGES, "nodes": "id\na\nb\nc\na\n"},
            "row 5, column id: id 'a' is already on row 2",
        ),
        ({"edges": EDGES, "nodes": "id,f\na,1\n,2\n"}, "row 3, column id: the id is empty"),
        (
            {"edges": EDGES, "nodes": "id,f\na,1\nb,x\nc,2\n"},
            "row 3, column f: 'x' is not a number",
        ),
        ({"edges": EDGES, "nodes": "id,f\na,1\nb,\nc,2\n"}, "row 3, column f: the cell is empty"),
        (
            {"edges": EDGES, "nodes": "id,f\na,1\nb,nan\nc,2\n"},
            "row 3, column f: 'nan' is not finite",
        ),
        (
            {"edges": EDGES, "nodes": "id,f\na,1\nb,inf\nc,2\n"},
            "row 3, column f: 'inf' is not finite",
        ),
        ({"edges": EDGES, "nodes": "id,f\na,1\nb,1e99\nc,2\n"}, "row 3, column f: '1e99' is not"),
        (
            {"edges": EDGES, "nodes": "id,label\na,1\nb,1.5\nc,2\n"},
            "row 3, column label: label '1.5' is not an integer",
        ),
        ({"edges": EDGES, "nodes": "id,label\na,1\nb,nan\nc,2\n"}, "row 3, column label"),
        ({"edges": EDGES, "nodes": "id,label\na,1\nb,-7\nc,2\n"}, "'-7' is not an integer from 0"),
        (
            {"edges": EDGES, "nodes": "id,split\na,train\nb,dev\nc,\n"},
            "row 3, column split: 'dev' is none of train, val, test",
        ),
        ({"graphs": GRAPHS, "edges": GRAPH_EDGES}, r"nodes\.csv: no such file"),
        (
            {"graphs": "id\ng1\n", "nodes": GRAPH_NODES, "edges": GRAPH_EDGES},
            r"graphs\.csv: column 'label' is missing",
        ),
        (
            {"graphs": GRAPHS, "nodes": "id\na\n", "edges": GRAPH_EDGES},
            r"nodes\.csv: column 'graph' is missing",
        ),
        (
            {"graphs": GRAPHS, "nodes": GRAPH_NODES + "z,g3,1\n", "edges": GRAPH_EDGES},
            "row 6, column graph: graph 'g3' is not in",
        ),
        (
            {"graphs": GRAPHS + "g3,no,\n", "nodes": GRAPH_NODES, "edges": GRAPH_EDGES},
            "graph 'g3' has no nodes",
        ),
        (
            {"graphs": GRAPHS, "nodes": GRAPH_NODES, "edges": GRAPH_EDGES + "a,x\n"},
            "row 4: the edge joins nodes of two graphs",
        ),
    ],
)
def test_bad_folders_are_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(write(tmp_path, **files))
    assert "\n" not in str(caught.value)


def test_strict_refuses_repeated_edges_and_self_loops(tmp_path: Path) -> None:
    folder = write(tmp_path, edges="source,target\na,b\nb,a\n")
    assert read(folder, strict=True).graphs[0].edge_index.size(1) == 2
    write(tmp_path, edges="source,target\na,b\na,b\nb,b\n")
    with pytest.raises(InputError, match="removed 1 self-loop, merged 1 duplicate edge"):
        read(folder, strict=True)


@pytest.mark.parametrize("name", ["edges.csv", "nodes.csv"])
def test_files_that_are_not_utf8_are_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, nodes=NODES, edges=EDGES)
    (tmp_path / name).write_bytes("id,source,target\né,é,é\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        read(tmp_path)


ids = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00", exclude_categories=("C", "Z")),
    min_size=1,
    max_size=5,
)
nodes = st.lists(
    st.tuples(ids, st.sampled_from(["", "cat", "dog", "7"]), st.floats(width=32, allow_nan=False)),
    min_size=2,
    max_size=6,
    unique_by=lambda node: node[0],
).filter(lambda rows: all(abs(row[2]) < 1e30 for row in rows))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(nodes, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9))
def test_what_is_written_is_read(
    tmp_path: Path, rows: list[tuple[str, str, float]], pairs: list[tuple[int, int]]
) -> None:
    names = [row[0] for row in rows]
    edges = {(i % len(names), j % len(names)) for i, j in pairs}
    with (tmp_path / "nodes.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "label", "f"), *rows])
    with (tmp_path / "edges.csv").open("w", newline="", encoding="utf-8") as file:
        lines = [(names[i], names[j]) for i, j in edges]
        csv.writer(file).writerows([("source", "target"), *lines])
    dataset = read(tmp_path)
    data = dataset.graphs[0]
    assert dataset.node_names == (tuple(names),)
    assert data.x[:, 0].tolist() == [row[2] for row in rows]
    read_labels = [dataset.class_names[c] if c >= 0 else "" for c in data.y.tolist()]
    assert read_labels == [row[1] for row in rows]
    both_ways = {pair for i, j in edges if i != j for pair in ((i, j), (j, i))}
    assert {tuple(pair) for pair in data.edge_index.t().tolist()} == both_ways
