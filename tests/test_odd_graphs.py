"""Graphs that no benchmark looks like: each trains and predicts, or is refused with the reason."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from strategies import Graph, LargestTensor, complete, no_edges, path, random_graph, undirected
from training.toys import SMALL
from vepm import CommunityDetector, GraphClassifier, NodeClassifier
from vepm.data import as_dataset, read
from vepm.errors import InputError
from vepm.kernels.features import SparseFeatures
from vepm.training import single_graph

Make = Callable[[Tensor], Tensor]


def labelled(graph: Graph, x: Tensor | None = None, y: Tensor | None = None) -> Data:
    """Nodes of two kinds, told apart by their features unless these are given."""
    kinds = torch.arange(graph.num_nodes) % 2 if y is None else y
    noise = torch.rand(graph.num_nodes, 3, generator=torch.Generator().manual_seed(0))
    noise[:, 0] += kinds
    return Data(x=noise if x is None else x, edge_index=graph.edge_index, y=kinds)


def check_nodes(data: Any, nodes: int, classes: int = 2) -> None:
    """Train, predict and look inside: every number is finite, every probability one."""
    model = NodeClassifier(config=SMALL["node"], device="cpu").fit(data)
    probabilities = model.predict_proba(data)
    assert probabilities.shape == (nodes, classes)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert np.isfinite(model.memberships(data)).all()
    share = model.edge_partition(data).share
    np.testing.assert_allclose(share.sum(1), 1, rtol=1e-5)
    assert all(np.isfinite(row["loss"]) for row in model.history_)


def check_graphs(graphs: list[Any], classes: int = 2) -> None:
    """The same for labelled graphs."""
    model = GraphClassifier(config=SMALL["graph"], device="cpu").fit(graphs)
    probabilities = model.predict_proba(graphs)
    assert probabilities.shape == (len(graphs), classes)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert all(np.isfinite(rows).all() for rows in model.memberships(graphs))


def among_others(graph: Graph, features: Make | None = None) -> list[Data]:
    """A graph in company of rings and cliques, features changed by a function."""
    shapes = [graph, path(4), complete(4), path(5), complete(5), graph]
    found = []
    for number, shape in enumerate(shapes):
        generator = torch.Generator().manual_seed(number)
        x = torch.rand(shape.num_nodes, 3, generator=generator)
        x = x if features is None else features(x)
        found.append(Data(x=x, edge_index=shape.edge_index, y=torch.tensor([number % 2])))
    return found


TWO_PARTS = undirected([(0, 1), (1, 2), (4, 5), (5, 6), (6, 4)], 8)
SHAPES = {
    "two nodes": path(2),
    "no edges": no_edges(6),
    "complete": complete(12),
    "star": undirected([(0, i) for i in range(1, 9)], 9),
    "disconnected": TWO_PARTS,
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_one_graph(name: str) -> None:
    check_nodes(labelled(SHAPES[name]), SHAPES[name].num_nodes)
    bare = Data(
        edge_index=SHAPES[name].edge_index,
        y=torch.arange(SHAPES[name].num_nodes) % 2,
    )
    check_nodes(bare, SHAPES[name].num_nodes)


@pytest.mark.parametrize("name", [*SHAPES, "one node"])
def test_shapes_among_graphs(name: str) -> None:
    check_graphs(among_others(SHAPES.get(name, no_edges(1))))


def test_one_node_has_nothing_to_tell_apart() -> None:
    with pytest.raises(InputError, match="at least two classes"):
        NodeClassifier().fit(labelled(no_edges(1)))
    found = CommunityDetector(config=SMALL["node"], device="cpu").fit(labelled(no_edges(1)))
    assert np.isfinite(found.memberships(labelled(no_edges(1)))).all()


def million_leaves() -> Graph:
    leaves = torch.arange(1, 10**6 + 1)
    centre = torch.zeros_like(leaves)
    forward = torch.stack([centre, leaves])
    return Graph(torch.cat([forward, forward.flip(0)], dim=1), 10**6 + 1)


TINY = {"hidden_channels": 2, "num_communities": 2, "encoder_channels": 2}
BRIEF = {"pretrain_epochs": 1, "epochs": 1}


def test_a_star_of_a_million_leaves() -> None:
    """Memory stays linear in nodes and edges: no table of pairs is ever made."""
    star = million_leaves()
    x = torch.ones(star.num_nodes, 1)
    x[::2] = 0.5
    y = torch.full((star.num_nodes,), -1)
    y[:40] = torch.arange(40) % 2
    data = Data(x=x, edge_index=star.edge_index, y=y)
    config = SMALL["node"].replace(**TINY, **BRIEF)
    with LargestTensor() as watched:
        model = NodeClassifier(config=config, device="cpu").fit(data)
        probabilities = model.predict_proba(data)
    assert watched.size <= 8 * star.num_nodes
    assert np.isfinite(probabilities).all()


def test_a_star_of_a_million_leaves_among_graphs() -> None:
    star = million_leaves()
    graphs = [
        Data(x=torch.ones(star.num_nodes, 1), edge_index=star.edge_index, y=torch.tensor([0])),
        Data(x=torch.ones(4, 1), edge_index=complete(4).edge_index, y=torch.tensor([1])),
    ]
    config = SMALL["graph"].replace(**TINY, **BRIEF)
    model = GraphClassifier(config=config, device="cpu").fit(graphs)
    assert np.isfinite(model.predict_proba(graphs)).all()


MESSY = torch.tensor([[0, 0, 1, 1, 2, 3, 4], [0, 1, 0, 2, 3, 4, 4]])


def test_untidy_edges_are_mended_with_a_message(caplog: pytest.LogCaptureFixture) -> None:
    data = labelled(Graph(torch.cat([MESSY, MESSY[:, 1:2]], dim=1), 5))
    with caplog.at_level(logging.INFO, logger="vepm"):
        check_nodes(data, 5)
    said = "removed 2 self-loops, merged 1 duplicate edge, added 3 missing reverse edges"
    assert said in caplog.text
    check_graphs(among_others(Graph(MESSY, 5)))


@pytest.mark.parametrize("task", ["node", "graph"])
def test_untidy_edges_are_refused_when_told_to_be_strict(task: Any) -> None:
    graphs = among_others(Graph(MESSY, 5))
    given = labelled(Graph(MESSY, 5)) if task == "node" else graphs
    with pytest.raises(InputError, match=r"removed \d self-loops"):
        as_dataset(given, task, strict=True)


FEATURES: dict[str, Make] = {
    "constant": torch.ones_like,
    "all zero": torch.zeros_like,
    "integers": lambda x: (9 * x).long(),
    "booleans": lambda x: x > 0.5,
    "double": lambda x: x.double(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "huge": lambda x: 1e30 * x,
    "tiny": lambda x: 1e-30 * x,
    "negative": lambda x: -x,
}


@pytest.mark.parametrize("name", FEATURES)
def test_features_of_every_kind(name: str) -> None:
    data = labelled(random_graph(14))
    data.x = FEATURES[name](data.x)
    check_nodes(data, 14)
    check_graphs(among_others(random_graph(6), FEATURES[name]))


WIDE = 10**5


def wide(rows: int) -> sp.csr_matrix:
    """Rows of a hundred thousand columns of which ten are not zero."""
    generator = np.random.default_rng(0)
    columns = generator.choice(WIDE, size=(rows, 10))
    columns[:, 0] = np.arange(rows) % 2
    values = np.ones(columns.size)
    return sp.csr_matrix((values, columns.ravel(), 10 * np.arange(rows + 1)), (rows, WIDE))


def test_a_hundred_thousand_sparse_features_stay_sparse() -> None:
    rows = 2000
    ring = nx.to_scipy_sparse_array(nx.cycle_graph(rows), format="csr")
    y = np.where(np.arange(rows) < 60, np.arange(rows) % 2, -1)
    data = (wide(rows), ring, y)
    config = SMALL["node"].replace(**TINY, **BRIEF)
    with LargestTensor() as watched:
        model = NodeClassifier(config=config, device="cpu").fit(data)
        probabilities = model.predict_proba(data)
    assert model.n_features_in_ == WIDE
    assert watched.size < 10 * WIDE < rows * WIDE / 100
    assert np.isfinite(probabilities).all()
    assert as_dataset(data).graphs[0].x.layout == torch.sparse_coo


def test_a_table_of_a_hundred_thousand_columns(tmp_path: Path) -> None:
    """What is written out in full is read in full, and sparse from there on."""
    names = ",".join(f"f{i}" for i in range(WIDE))
    rows = [
        f"n{i},{'ab'[i % 2]}," + ",".join("1" if j % 40 == i % 2 else "0" for j in range(WIDE))
        for i in range(6)
    ]
    (tmp_path / "nodes.csv").write_text("\n".join([f"id,label,{names}", *rows]))
    (tmp_path / "edges.csv").write_text("source,target\nn0,n1\nn1,n2\nn2,n3\nn3,n4\nn4,n5\n")
    dataset = read(tmp_path)
    assert dataset.num_features == WIDE
    assert isinstance(single_graph(dataset.graphs[0]).x, SparseFeatures)
    check_nodes(dataset, 6)


def test_sparse_features_give_what_a_full_table_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 30
    ring = nx.to_scipy_sparse_array(nx.cycle_graph(rows), format="csr")
    x, y = wide(rows)[:, :300], np.arange(rows) % 2
    models = []
    for most in (0, 10**7):
        monkeypatch.setattr("vepm.data.canonical.MOST_DENSE_ENTRIES", most)
        model = NodeClassifier(config=SMALL["node"], device="cpu").fit((x, ring, y))
        models.append(model.predict_proba((x, ring, y)))
    np.testing.assert_allclose(models[0], models[1], rtol=1e-5)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_sparse_features_that_are_not_finite_are_refused(odd: float) -> None:
    x = wide(200)
    x.data[15] = odd
    ring = nx.to_scipy_sparse_array(nx.cycle_graph(200), format="csr")
    with pytest.raises(InputError, match=r"feature of node 1, column \d+ is (nan|inf)"):
        as_dataset((x, ring, np.arange(200) % 2))


def test_too_many_columns_are_refused_before_memory_is_taken() -> None:
    x = sp.csr_matrix(([1.0, 1.0], ([0, 1], [0, 10**12])), shape=(2, 10**12 + 1))
    with pytest.raises(InputError, match="give at most 4194304"):
        as_dataset((x, np.ones((2, 2)) - np.eye(2), [0, 1]))


def test_sparse_features_too_large_for_tables_are_refused_among_graphs() -> None:
    where = torch.tensor([[0, 1], [5, 7]])
    x = torch.sparse_coo_tensor(where, torch.ones(2), (200, WIDE), check_invariants=True)
    graphs = [
        Data(x=x, edge_index=path(200).edge_index, y=torch.tensor([label])) for label in (0, 1)
    ]
    with pytest.raises(InputError, match="too many for a full table"):
        GraphClassifier().fit(graphs)


def test_a_class_with_a_single_label() -> None:
    y = torch.tensor([0] * 12 + [1])
    check_nodes(labelled(random_graph(13), y=y), 13)
    graphs = among_others(path(3))
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([int(number == 0)])
    check_graphs(graphs)


def test_labels_of_one_graph_only() -> None:
    graphs = among_others(path(3))
    for graph in graphs[1:]:
        graph.y = torch.tensor([-1])
    with pytest.raises(InputError, match="every labelled graph is of class '0'"):
        GraphClassifier().fit(graphs)


def test_labels_of_one_part_of_a_graph_only() -> None:
    y = torch.tensor([0, 1, 0, -1, -1, -1, -1, -1])
    check_nodes(labelled(TWO_PARTS, y=y), 8)


@pytest.mark.parametrize("name", [lambda i: f"name {i} é", lambda i: 10**18 + i, lambda i: -i])
def test_ids_of_every_kind(name: Callable[[int], object]) -> None:
    graph: nx.Graph[object] = nx.relabel_nodes(nx.cycle_graph(12), {i: name(i) for i in range(12)})
    for i, node in enumerate(graph):
        graph.nodes[node].update(label=["a", "b"][i % 2], size=float(i % 2))
    check_nodes(graph, 12)
    assert as_dataset(graph).node_names == (tuple(str(name(i)) for i in range(12)),)


def test_numbers_that_are_ids_are_refused_with_the_remedy() -> None:
    edges = torch.tensor([[0, 10**18], [10**18, 0]])
    with pytest.raises(InputError, match="number the nodes from 0"):
        as_dataset(Data(edge_index=edges))
    with pytest.raises(InputError, match="nodes run from 0 to 1"):
        as_dataset(Data(edge_index=edges, num_nodes=2))


def test_labels_of_10_to_the_18() -> None:
    y = torch.tensor([10**18, 10**18 + 1] * 7)
    model = NodeClassifier(config=SMALL["node"], device="cpu").fit(labelled(random_graph(14), y=y))
    assert set(model.predict(labelled(random_graph(14), y=y)).tolist()) <= {10**18, 10**18 + 1}
