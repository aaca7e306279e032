"""Weights and directions of edges: read from every format and kept beside the edges."""

import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from vepm import NodeClassifier
from vepm.data import Dataset, as_dataset, read
from vepm.errors import InputError

Pairs = dict[tuple[str, str], float]

DIRECTED: Pairs = {("a", "b"): 2.0, ("b", "a"): 0.5, ("b", "c"): 1.0, ("d", "a"): 3.0}
UNDIRECTED: Pairs = {("a", "b"): 2.5, ("b", "c"): 1.0, ("a", "d"): 3.0}


def weight_by_edge(dataset: Dataset) -> Pairs:
    graph = dataset.graphs[0]
    assert graph.edge_weight.dtype == torch.float32
    names = dataset.node_names[0] if dataset.node_names else "abcd"
    ends = [(names[i], names[j]) for i, j in graph.edge_index.t().tolist()]
    return dict(zip(ends, graph.edge_weight.tolist(), strict=True))


def both_ways(pairs: Pairs) -> Pairs:
    return pairs | {(j, i): weight for (i, j), weight in pairs.items()}


def csv_folder(folder: Path, **how: Any) -> Dataset:
    # The edge from d to a is listed twice, and a self-loop has a weight as well.
    rows = ["a,b,2", "b,a,0.5", "b,c,1", "d,a,1", "d,a,2", "a,a,7"]
    (folder / "edges.csv").write_text("\n".join(["source,target,weight", *rows]))
    return read(folder, **how)


def edge_list(folder: Path, **how: Any) -> Dataset:
    (folder / "g.edgelist").write_text("a b {'weight': 2.0}\nb a {'weight': 0.5}\nb c {}\nd a 3\n")
    return read(folder / "g.edgelist", **how)


def digraph() -> Any:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_weighted_edges_from((u, v, weight) for (u, v), weight in DIRECTED.items())
    return graph


def networkx_graph(folder: Path, **how: Any) -> Dataset:
    return as_dataset(digraph(), **how)


def graphml(folder: Path, **how: Any) -> Dataset:
    nx.write_graphml(digraph(), folder / "g.graphml")
    return read(folder / "g.graphml", **how)


def matrix() -> Any:
    table = np.zeros((4, 4))
    for (u, v), weight in DIRECTED.items():
        table["abcd".index(u), "abcd".index(v)] = weight
    return table


def scipy_matrix(folder: Path, **how: Any) -> Dataset:
    return as_dataset((None, sp.csr_array(matrix())), **how)


def scipy_file(folder: Path, **how: Any) -> Dataset:
    sp.save_npz(folder / "g.npz", sp.csr_array(matrix()))
    return read(folder / "g.npz", **how)


def npz(folder: Path, **how: Any) -> Dataset:
    csr = sp.csr_array(matrix())
    arrays = {name: getattr(csr, name) for name in ("data", "indices", "indptr", "shape")}
    adjacency: dict[str, Any] = {f"adj_{name}": array for name, array in arrays.items()}
    np.savez(folder / "g.npz", **adjacency, directed=np.array(True))
    return read(folder / "g.npz", **how)


def pyg(folder: Path, **how: Any) -> Dataset:
    ends = torch.tensor([["abcd".index(end) for end in pair] for pair in DIRECTED]).t()
    weights = torch.tensor(list(DIRECTED.values()))
    return as_dataset(Data(edge_index=ends, edge_weight=weights, num_nodes=4), **how)


FORMATS = [
    csv_folder,
    edge_list,
    networkx_graph,
    graphml,
    scipy_matrix,
    scipy_file,
    npz,
    pyg,
]


@pytest.mark.parametrize("make", FORMATS)
def test_weights_and_directions_of_every_format(make: Any, tmp_path: Path) -> None:
    undirected = make(tmp_path)
    assert weight_by_edge(undirected) == both_ways(UNDIRECTED)
    assert not undirected.directed
    directed = make(tmp_path, directed=True)
    assert weight_by_edge(directed) == DIRECTED
    assert directed.directed
    # Sorted by destination and then source, as undirected edges are.
    row, col = directed.graphs[0].edge_index
    assert (col * 4 + row).diff().min() > 0
    without = make(tmp_path, weights=False)
    assert "edge_weight" not in without.graphs[0]
    assert without.graphs[0].edge_index.equal(undirected.graphs[0].edge_index)
    # Features are those of the undirected graph, which has coordinates.
    assert directed.graphs[0].x.equal(undirected.graphs[0].x)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # The same in both directions throughout: each edge is listed twice.
        (["a,b,2", "b,a,2", "b,c,3"], {("a", "b"): 2.0, ("b", "c"): 3.0}),
        # Not the same: both directions count.
        (["a,b,2", "b,a,2", "b,c,3", "c,b,1"], {("a", "b"): 4.0, ("b", "c"): 4.0}),
        (["a,b,2", "a,b,0.25"], {("a", "b"): 2.25}),
    ],
)
def test_edges_listed_several_times(rows: list[str], expected: Pairs, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("\n".join(["source,target,weight", *rows]))
    assert weight_by_edge(read(tmp_path)) == both_ways(expected)


def test_directions_of_a_directed_graph_are_added_though_all_are_equal() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 2.0), ("b", "a", 2.0), ("b", "c", 3.0)])
    assert weight_by_edge(as_dataset(graph))[("a", "b")] == 4.0
    assert weight_by_edge(as_dataset(graph.to_undirected()))[("a", "b")] == 2.0


def test_parallel_edges_of_a_multigraph_are_added() -> None:
    graph: nx.MultiGraph[str] = nx.MultiGraph()
    graph.add_weighted_edges_from([("a", "b", 2.0), ("b", "a", 2.0), ("b", "c", 1.0)])
    assert weight_by_edge(as_dataset(graph)) == both_ways({("a", "b"): 4.0, ("b", "c"): 1.0})


@pytest.mark.parametrize("value", [1, 1.0, True])
def test_weights_that_are_all_one_are_none(value: float) -> None:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", weight=value)
    assert "edge_weight" not in as_dataset(graph).graphs[0]
    table = np.full((2, 2), value)
    assert "edge_weight" not in as_dataset((None, table)).graphs[0]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("0", "row 3: the weight is 0; edge weights must be positive and finite"),
        ("-2", "row 3: the weight is -2"),
        ("nan", "the weight is nan"),
        ("inf", "the weight is inf"),
        ("1e300", "the weight is 1e"),
        ("1e-300", "the weight is 1e-300"),
        ("", "row 3, column weight: '' is not a number; give every edge a weight"),
        ("much", "'much' is not a number"),
        ("9" * 5000, "the weight is inf"),
    ],
)
def test_bad_weights_in_a_table(cell: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(f"source,target,weight\na,b,2\nb,c,{cell}\n")
    with pytest.raises(InputError, match=words) as caught:
        read(tmp_path)
    assert "--no-weights" in str(caught.value)
    assert "edge_weight" not in read(tmp_path, weights=False).graphs[0]


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "much", [1], 10**400])
def test_bad_weights_in_memory(value: Any) -> None:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", weight=value)
    with pytest.raises(InputError, match=r"data, edge 'a' to 'b'(, attribute weight)?: "):
        as_dataset(graph)
    assert "edge_weight" not in as_dataset(graph, weights=False).graphs[0]


@pytest.mark.parametrize(
    "weights",
    [torch.ones(3), torch.ones(2, 2), torch.ones(2, dtype=torch.complex64), [2.0, 2.0]],
)
def test_weights_that_do_not_fit_are_refused(weights: Any) -> None:
    ends = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(InputError, match="edge_weight does not fit edge_index"):
        as_dataset(Data(edge_index=ends, edge_weight=weights, num_nodes=2))


def test_negative_entries_of_a_matrix_are_refused() -> None:
    signed = np.array([[0, -1.0], [-1.0, 0]])
    with pytest.raises(InputError, match="edge from 0 to 1: the weight is -1"):
        as_dataset((None, signed))
    assert as_dataset((None, signed), weights=False).graphs[0].edge_index.size(1) == 2


def test_weights_of_many_graphs() -> None:
    ends = torch.tensor([[0, 1], [1, 0]])
    graphs = [
        Data(edge_index=ends, edge_weight=torch.full((2, 1), w), y=torch.tensor([int(w)]))
        for w in (1.0, 3.0)
    ]
    dataset = as_dataset(graphs)
    assert [graph.edge_weight.tolist() for graph in dataset.graphs] == [[1.0, 1.0], [3.0, 3.0]]
    directed = as_dataset(graphs, directed=True)
    assert all(graph.directed for graph in directed.graphs)
    del graphs[0].edge_weight
    with pytest.raises(InputError, match=r"and graph 0 {}; give all graphs the same"):
        as_dataset(graphs)


def test_edges_without_direction_cannot_be_directed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its edges have no direction"):
        as_dataset(nx.path_graph(3), directed=True)
    nx.write_graphml(nx.path_graph(3), tmp_path / "g.graphml")
    with pytest.raises(InputError, match="its edges have no direction"):
        read(tmp_path / "g.graphml", directed=True)


def test_one_way_edges_are_what_strict_expects_of_a_directed_graph() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph([("a", "b")])
    with pytest.raises(InputError, match="missing reverse edge"):
        as_dataset(graph, strict=True)
    assert as_dataset(graph, strict=True, directed=True).graphs[0].edge_index.tolist() == [[0], [1]]


def test_a_weight_without_a_header_is_announced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "g.txt").write_text("a b 3\nb c 2\n")
    assert read(tmp_path / "g.txt").graphs[0].edge_weight.tolist() == [3, 3, 2, 2]
    assert "the number after the ids of an edge is taken for its weight" in caplog.text
    caplog.clear()
    (tmp_path / "g.txt").write_text("source,target,weight\na,b,3\nb,c,2\n")
    read(tmp_path / "g.txt")
    assert not caplog.text


def test_what_follows_the_ids_may_be_no_weight(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text("a b friend\nb c 2\n")
    assert "edge_weight" not in read(tmp_path / "g.txt").graphs[0]


def test_a_model_is_trained_on_directed_edges() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph([("a", "b"), ("b", "c")])
    for i, node in enumerate(graph):
        graph.nodes[node]["label"] = i % 2
    model = NodeClassifier(num_communities=4, num_metacommunities=2, pretrain_epochs=1, epochs=1)
    found = model.fit(as_dataset(graph, directed=True))
    assert found.model_.directed
    # The model says how a graph is to be read; a dataset was read already.
    assert len(found.predict(graph)) == 3
    with pytest.raises(InputError, match=r"a graph read with directed=True"):
        found.predict(as_dataset(graph))
