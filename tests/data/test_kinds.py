"""Kinds of edges: read from every format, kept beside the edges, aligned with them."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from vepm.data import Dataset, as_dataset, load, planted_relations, read
from vepm.errors import InputError

EDGES = {("a", "b"): "friend", ("b", "c"): "work|friend", ("c", "d"): "", ("d", "a"): "work"}
EXPECTED = {
    frozenset("ab"): {"friend"},
    frozenset("bc"): {"friend", "work"},
    frozenset("cd"): set(),
    frozenset("da"): {"work"},
}


def kinds_by_edge(dataset: Dataset) -> dict[frozenset[str], set[str]]:
    graph = dataset.graphs[0]
    assert dataset.kind_names is not None
    assert graph.edge_kind.dtype == torch.bool
    assert graph.edge_kind.shape == (graph.edge_index.size(1), len(dataset.kind_names))
    names = dataset.node_names[0] if dataset.node_names else "abcd"
    found: dict[frozenset[str], set[str]] = {}
    for (i, j), row in zip(graph.edge_index.t().tolist(), graph.edge_kind.tolist(), strict=True):
        kinds = {name for name, member in zip(dataset.kind_names, row, strict=True) if member}
        # Both directions of an edge are of the same kinds.
        assert found.setdefault(frozenset((names[i], names[j])), kinds) == kinds
    return found


def csv_folder(folder: Path) -> Dataset:
    # An edge listed twice is of both kinds, whatever its direction.
    rows = ["a,b,friend", "b,c,work", "c,b,friend", "c,d,", "d,a,work", "a,a,work"]
    (folder / "edges.csv").write_text("\n".join(["source,target,kind", *rows]))
    return read(folder)


def networkx_graph(folder: Path) -> Dataset:
    graph: nx.Graph[str] = nx.Graph()
    for (u, v), kind in EDGES.items():
        graph.add_edge(u, v, kind=kind.split("|") if "|" in kind else kind)
    return as_dataset(graph)


def graphml(folder: Path) -> Dataset:
    graph: nx.MultiGraph[str] = nx.MultiGraph()
    for (u, v), kinds in EDGES.items():
        for kind in kinds.split("|"):
            graph.add_edge(u, v, kind=kind)
    nx.write_graphml(graph, folder / "g.graphml")
    return read(folder / "g.graphml")


def npz(folder: Path) -> Dataset:
    mask = np.zeros((4, 4), dtype=np.uint8)
    for i, j, bits in ((0, 1, 1), (1, 2, 3), (2, 3, 0), (3, 0, 2)):
        mask[i, j] = mask[j, i] = bits
    ring = sp.csr_matrix(nx.to_numpy_array(nx.cycle_graph(4)))
    at = (np.repeat(np.arange(4), np.diff(ring.indptr)), ring.indices)
    np.savez(
        folder / "g.npz",
        adj_data=ring.data,
        adj_indices=ring.indices,
        adj_indptr=ring.indptr,
        adj_shape=ring.shape,
        edge_kind=mask[at],
        kind_names=np.array(["friend", "work"]),
    )
    return read(folder / "g.npz")


def pyg(folder: Path) -> Dataset:
    edges = torch.tensor([[1, 0, 2, 3, 1, 2], [0, 1, 3, 0, 2, 1]])
    kinds = torch.tensor([1, 0, 0, 2, 2, 1], dtype=torch.uint8)
    return as_dataset(Data(edge_index=edges, edge_kind=kinds, kind_names=["friend", "work"]))


@pytest.mark.parametrize("make", [csv_folder, networkx_graph, graphml, npz, pyg])
def test_kinds_are_kept_beside_their_edges(make: Any, tmp_path: Path) -> None:
    dataset = make(tmp_path)
    assert dataset.kind_names == ("friend", "work")
    assert kinds_by_edge(dataset) == EXPECTED
    assert not any("kind" in name for name in dataset.feature_names or ())


def test_kinds_of_many_graphs(tmp_path: Path) -> None:
    ends = torch.tensor([[0, 1], [1, 0]])
    graphs = [
        Data(edge_index=ends, edge_kind=torch.tensor([k, k]), y=torch.tensor([k])) for k in (0, 3)
    ]
    dataset = as_dataset(graphs)
    assert dataset.kind_names == ("kind 0", "kind 1")
    assert [graph.edge_kind.tolist() for graph in dataset.graphs] == [
        [[False] * 2] * 2,
        [[True] * 2] * 2,
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"edge_kind": torch.tensor([1])}, "does not fit edge_index"),
        ({"edge_kind": torch.tensor([0.5, 1.0])}, "give a bit mask"),
        ({"edge_kind": torch.tensor([-1, 1])}, "not negative"),
        (
            {"edge_kind": torch.tensor([1, 2]), "kind_names": ["one"]},
            "1 different kind_names for 2",
        ),
        ({"edge_kind": torch.ones(2, 64)}, "give a bit mask"),
        ({"edge_kind": torch.ones(2, 64, dtype=torch.bool)}, "64 kinds, at most 63"),
    ],
)
def test_odd_kinds_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_dataset(Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2, **fields))


def test_planted_relations_are_what_they_are_asked_to_be() -> None:
    dataset = planted_relations(3000, 3, 5, strength=0.7, average_degree=8, seed=1)
    graph = dataset.graphs[0]
    assert dataset.kind_names == ("relation 1", "relation 2", "relation 3")
    assert dataset.num_classes == 5
    assert graph.y.equal(graph.relation_communities[:, 0])
    assert graph.edge_kind.any(1).all()
    row, col = graph.edge_index
    for r, groups in enumerate(graph.relation_communities.unbind(1)):
        own = graph.edge_kind[:, r]
        assert int(own.sum()) == pytest.approx(3000 * 8, rel=0.05)
        same = (groups[row] == groups[col]).float()
        # Of the edges that join nodes at random, a fifth fall into a community.
        assert float(same[own].mean()) == pytest.approx(0.7 + 0.3 / 5, abs=0.02)
        assert float(same[~graph.edge_kind[:, r]].mean()) == pytest.approx(1 / 5, abs=0.02)


def test_bit_masks_name_the_kinds_of_an_edge() -> None:
    ends = torch.tensor([[1, 2, 3], [0, 1, 2]])
    dataset = as_dataset(Data(edge_index=ends, edge_kind=torch.tensor([1, 2, 6])))
    assert dataset.kind_names == ("kind 0", "kind 1", "kind 2")
    graph = dataset.graphs[0]
    rows = dict(
        zip(map(tuple, graph.edge_index.t().tolist()), graph.edge_kind.int().tolist(), strict=True)
    )
    assert (rows[1, 0], rows[2, 1], rows[3, 2]) == ([1, 0, 0], [0, 1, 0], [0, 1, 1])


def test_features_of_planted_relations_are_memberships_under_noise() -> None:
    graph = planted_relations(400, 2, 2, num_features=500, seed=0).graphs[0]
    _, groups = graph.relation_communities.unique(dim=0, return_inverse=True)
    means = torch.stack([graph.x[groups == group].mean(0) for group in range(4)])
    # What is left of a hundred nodes of a group without their mean.
    assert float((graph.x - means[groups]).std()) == pytest.approx(2, rel=0.02)
    # Unit normal, halved for each of two relations; the noise of the means adds 2 * 4 / 100.
    apart = (means[0] - means[3]).square().mean()
    assert float(apart) == pytest.approx(2 + 0.08, rel=0.2)


def test_planted_relations_repeat_by_seed_and_name() -> None:
    first, again = (load("planted-relations:nodes=300,relations=2,seed=4").graphs[0] for _ in "ab")
    other = load("Planted-Relations:nodes=300,relations=2,seed=5").graphs[0]
    assert first.edge_index.equal(again.edge_index)
    assert first.x.equal(again.x)
    assert not first.x.equal(other.x)
    assert first.edge_kind.size(1) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("communities", "4"),
        ("relations", "4"),
        ("strength", "0.5"),
        ("edges", "2000"),
        ("labels", "3"),
    ],
)
def test_every_setting_of_the_recipe_changes_the_graph(name: str, value: str) -> None:
    base = load("planted-relations:nodes=300").graphs[0]
    other = load(f"planted-relations:nodes=300,{name}={value}").graphs[0]
    same = base.edge_index.equal(other.edge_index)
    assert not (same and base.train_mask.equal(other.train_mask))


@pytest.mark.parametrize(
    "settings", [{"num_relations": 0}, {"num_relations": 64}, {"strength": 0.0}, {"strength": 1.1}]
)
def test_odd_relations_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="give 1 to 63 relations and a strength above 0"):
        planted_relations(100, **settings)
