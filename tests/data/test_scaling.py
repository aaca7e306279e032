"""Columns at one scale: which are standardised, which stay, and that size does not matter."""

from dataclasses import replace
from typing import Any

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strategies import quick, seeds
from vepm.data import Dataset, as_dataset, load, planted_graph, scaling
from vepm.data.canonical import NUM_POSITIONS
from vepm.data.scaling import (
    Anchors,
    Scaling,
    assortativity,
    homophily,
    needs_coordinates,
    standardised,
    with_coordinates,
)
from vepm.errors import InputError

GENERATOR = torch.Generator().manual_seed(0)
NORMAL = torch.randn(200, generator=GENERATOR)
YES = (torch.rand(200, generator=GENERATOR) < 0.8).float()
COUNTS = torch.randint(1, 9, (200,), generator=GENERATOR) * (torch.arange(200) % 3 == 0)
AMOUNT = 1e6 * (torch.arange(200) % 4 == 0)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (40 + 10 * NORMAL, "dense"),
        (1e-27 * NORMAL, "dense"),
        (3e19 * NORMAL, "dense"),
        (1e30 + 1e24 * NORMAL, "dense"),
        (torch.exp(3 * NORMAL), "dense"),
        (-1e-27 * torch.exp(3 * NORMAL), "dense"),
        (2 * YES - 1, "dense"),
        (YES, "kept"),
        (1 - YES, "kept"),
        (COUNTS, "kept"),
        (AMOUNT, "dense"),
        (torch.full((200,), 7.0), "constant"),
        (torch.full((200,), 0.1), "constant"),
        (torch.zeros(200), "constant"),
    ],
)
def test_each_kind_of_column(column: Tensor, kind: str) -> None:
    x = torch.stack([column.float(), YES, 1 - YES], dim=1)
    scaling = Scaling.of(x)
    found = scaling(x)[:, 0]
    assert scaling.kept.tolist() == [kind == "kept", True, True]
    assert found.isfinite().all()
    if kind == "dense":
        torch.testing.assert_close(found.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
        torch.testing.assert_close(found.std(correction=0), torch.tensor(1.0))
    else:
        assert found.count_nonzero() == (0 if kind == "constant" else column.count_nonzero())


def test_numbers_are_standardised_and_words_stay() -> None:
    club = load("KarateClub")
    assert standardised(club) is club
    graph = club.graphs[0].clone()
    graph.x = torch.cat([graph.x, 1e4 + 1e3 * NORMAL[:34, None]], dim=1)
    found = standardised(replace(club, graphs=[graph], feature_names=None)).features
    assert torch.equal(found[:, :-1], club.features)
    torch.testing.assert_close(found[:, -1].mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[:, -1].std(correction=0), torch.tensor(1.0))
    halves = [graph.subgraph(torch.arange(17)), graph.subgraph(torch.arange(17, 34))]
    for half in halves:
        half.y = half.y[:1]
    many = replace(club, task="graph", graphs=halves, feature_names=None, node_names=None)
    assert torch.equal(standardised(many).features, found)
    assert halves[0].x is many.graphs[0].x
    graph.x[:, -1] /= 1e6
    few = replace(club, graphs=[graph], feature_names=None)
    assert standardised(few) is few


def test_rows_have_length_one_in_each_block() -> None:
    dense = 5 + 3 * torch.randn(500, 40, generator=GENERATOR)
    words = (torch.rand(500, 100, generator=GENERATOR) < 0.1).float()
    positions = torch.randn(500, 16, generator=GENERATOR)
    x = torch.cat([dense, words, positions], dim=1)
    found = Scaling.of(x, num_positions=16)(x)
    torch.testing.assert_close(found[:, 40:140].norm(dim=1), torch.ones(500))
    for block in (found[:, :40], found[:, 140:]):
        assert block.square().sum(1).mean() == pytest.approx(1, abs=0.05)
    assert found[:, 140:].equal(positions / 4)


@pytest.mark.parametrize("size", [1.0, 1e-27, 3e19])
def test_bags_of_words_keep_their_zeros_and_proportions_at_any_size(size: float) -> None:
    words = torch.randint(-30, 4, (50, 30), generator=GENERATOR).clamp(min=0)
    x = size * words.float()
    expected = torch.nn.functional.normalize(words.float())
    found = Scaling.of(x)(x)
    torch.testing.assert_close(found, expected)
    assert ((found == 0) == (words == 0)).all()
    sparse = x.to_sparse_coo().coalesce()
    scaled = Scaling.of(sparse)(sparse)
    assert scaled.is_sparse
    torch.testing.assert_close(scaled.to_dense(), expected)


def test_logarithms_come_first_where_a_column_has_a_heavy_tail() -> None:
    income = torch.exp(3 * NORMAL)
    both = torch.stack([income, -income, NORMAL], dim=1)
    found = Scaling.of(both)
    assert (found.unit > 0).tolist() == [True, True, False]
    scaled = found(both)
    assert scaled.abs().max() < 4
    assert torch.corrcoef(torch.stack([scaled[:, 0], NORMAL]))[0, 1] > 0.97
    assert scaled[:, 0].argsort().equal(income.argsort())
    earlier = {name: tensor for name, tensor in found.tensors().items() if name != "unit"}
    assert (Scaling.from_tensors(earlier, 3)(both)[:, 0].abs() > 4).any()
    # A hundred times the median is not enough.
    edge = torch.ones(21)
    for largest, heavy in ((100.0, False), (101.0, True)):
        edge[0] = largest
        assert bool(Scaling.of(torch.stack([edge, -edge], dim=1)).unit.all()) is heavy


def test_new_rows_are_scaled_as_in_training() -> None:
    x = torch.stack([40 + 10 * NORMAL, YES], dim=1)
    scaling = Scaling.of(x)
    kept = Scaling.from_tensors(scaling.tensors(), 2)
    assert kept(x[3:4]).equal(scaling(x)[3:4])
    with pytest.raises(ValueError, match="scales of columns"):
        Scaling.from_tensors(scaling.tensors(), 3)
    with pytest.raises(ValueError, match="scales of columns"):
        Scaling.from_tensors(scaling.tensors() | {"factor": torch.full((2,), torch.nan)}, 2)


def test_coordinates_are_for_one_graph_with_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = planted_graph(50, 2, num_features=16), planted_graph(50, 2, num_features=15)
    assert not needs_coordinates(wide)
    assert needs_coordinates(narrow)
    constant = wide.graphs[0].clone()
    constant.x[:, 0] = 1
    assert needs_coordinates(as_dataset(constant, task="node"))
    assert not needs_coordinates(load("KarateClub"))
    assert not needs_coordinates(load("digits-graphs"))
    found = with_coordinates(narrow)
    assert found.num_features == 15 + NUM_POSITIONS
    assert found.num_positions == NUM_POSITIONS
    assert with_coordinates(found) is found
    monkeypatch.setattr(scaling, "positions", None)  # they are computed once
    assert with_coordinates(narrow).features.equal(found.features)


def test_half_of_the_entries_and_a_thousandfold_size_are_still_those_of_words() -> None:
    half, more = torch.tensor([0.0, 0, 2, 3]), torch.tensor([0.0, 4, 2, 3])
    assert Scaling.of(torch.stack([half, more], dim=1)).kept.tolist() == [True, False]
    words = torch.zeros(8, 4)
    words[0, 0] = words[1, 1] = 2.0
    for size, kept in ((2000.0, True), (2001.0, False), (0.002, True), (0.0019, False)):
        words[2, 3] = size
        assert Scaling.of(words).kept.tolist() == [True, True, False, kept]


def test_scales_by_hand() -> None:
    x = torch.tensor(
        [[1.0, 6.0, 0.0, 5.0, 1.0], [3.0, 2.0, 12.0, 5.0, 0.0], [5.0, 4.0, 0.0, 5.0, 0.0]]
    )
    found = Scaling.of(x, 1)
    spread = (8 / 3) ** 0.5
    assert found.center.tolist() == [3.0, 4.0, 0.0, 0.0, 0.0]
    # Two dense columns; words of size 12 are divided by 8; one coordinate stays as it is.
    expected = torch.tensor([2**-0.5 / spread, 2**-0.5 / spread, 1 / 8, 0.0, 1.0])
    torch.testing.assert_close(found.factor, expected.double())
    assert found.kept.tolist() == [False, False, True, False, False]
    assert Scaling.of(x, 4).factor[1:].tolist() == [0.5] * 4
    sparse = torch.tensor([[0.0, 12.0], [3.0, 4.0]]).to_sparse_coo().coalesce()
    found = Scaling.of(sparse)
    assert found.factor.tolist() == [1 / 8] * 2
    torch.testing.assert_close(found(sparse).to_dense(), torch.tensor([[0.0, 1.0], [0.6, 0.8]]))


def named_ring(names: str, chord: str = "") -> Dataset:
    """A ring of nodes without features, with one more edge perhaps."""
    graph = nx.Graph(zip(names, names[1:] + names[0], strict=True))
    graph.add_edges_from([(chord[0], chord[1])] if chord else [])
    found = as_dataset(graph, task="node")
    assert found.num_positions == NUM_POSITIONS
    return found


def test_nodes_of_training_keep_their_coordinates() -> None:
    old = named_ring("abcdefghijklmnopqrst", "ak")
    anchors = Anchors.of(old)
    assert anchors is not None
    assert anchors.edges.size(1) == 21
    again = anchors.align(old)
    assert again.num_positions == 0
    torch.testing.assert_close(again.graphs[0].x, old.graphs[0].x)
    turned = named_ring("tsrqponmlkjihgfedcba", "ak")
    assert turned.node_names is not None
    row = {name: i for i, name in enumerate("abcdefghijklmnopqrst")}
    own = [row[name] for name in turned.node_names[0]]
    found = anchors.align(turned).graphs[0].x
    torch.testing.assert_close(found[:, 2:], anchors.coordinates[own])
    torch.testing.assert_close(found[:, :2], turned.graphs[0].x[:, :2])


def test_new_nodes_are_placed_by_the_map_that_fits_the_known_ones() -> None:
    anchors = Anchors.of(named_ring("abcdefghijklmnopqrst", "ak"))
    grown = named_ring("abcdefghijklmnopqrstuvw", "ak")
    assert anchors is not None
    assert grown.node_names is not None
    known = torch.tensor([name < "u" for name in grown.node_names[0]])
    own, found = grown.graphs[0].x[:, 2:], anchors.align(grown).graphs[0].x[:, 2:]
    row = ["abcdefghijklmnopqrst".index(name) for name in grown.node_names[0] if name < "u"]
    torch.testing.assert_close(found[known], anchors.coordinates[row])
    inverse = torch.linalg.pinv(own[known].double(), rtol=1e-6)
    expected = own[~known].double() @ inverse @ anchors.coordinates[row].double()
    torch.testing.assert_close(found[~known], expected.float(), atol=1e-3, rtol=1e-3)


def test_half_of_the_nodes_and_edges_make_it_the_same_graph() -> None:
    anchors = Anchors.of(named_ring("abcdefgh"))
    assert anchors is not None
    anchors.align(named_ring("abcdABCD"))
    with pytest.raises(InputError, match="only 3 of its 8 nodes are known from training"):
        anchors.align(named_ring("abcABCDE"))
    # Of the edges ab, bc, cd, de, ef, fg, gh, ha four exist.
    anchors.align(named_ring("abchedfg"))
    with pytest.raises(InputError, match="only 38% of the edges of training between its nodes"):
        anchors.align(named_ring("abcdgehf"))


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("edges", torch.zeros(3, 4, dtype=torch.int32), r"anchors are \[3, 4\]"),
        ("edges", torch.zeros(2, dtype=torch.int32), r"anchors are \[2\]"),
        ("edges", torch.zeros(2, 4), "anchors are .* torch.float32"),
        ("edges", torch.tensor([[0], [8]], dtype=torch.int32), "name nodes that have no"),
        ("edges", torch.tensor([[-1], [3]], dtype=torch.int32), "name nodes that have no"),
        ("coordinates", torch.zeros(8, 15), r"anchors are \[8, 15\]"),
        ("coordinates", torch.zeros(8, 16).double(), "torch.float64"),
        ("coordinates", torch.full((8, 16), torch.inf), "not finite"),
        (
            "names",
            torch.frombuffer(bytearray(b'["a", "b"]'), dtype=torch.uint8),
            "2 node ids for 8",
        ),
    ],
)
def test_forged_anchors_are_refused(part: str, value: Tensor, message: str) -> None:
    anchors = Anchors.of(named_ring("abcdefgh"))
    assert anchors is not None
    tensors = anchors.tensors()
    assert Anchors.from_tensors(tensors).names == anchors.names
    with pytest.raises(ValueError, match=message):
        Anchors.from_tensors(tensors | {part: value})


def test_edges_are_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = named_ring("abcdefghijklmnopqrst")
    for most, kept in ((20, 20), (19, 10), (10, 10), (7, 7), (6, 5)):
        monkeypatch.setattr(scaling, "MOST_EDGES", most)
        anchors = Anchors.of(ring)
        assert anchors is not None
        assert anchors.edges.size(1) == kept


def test_rows_of_stored_zeros_stay_zero() -> None:
    places = torch.tensor([[0, 0, 1], [0, 1, 2]])
    values = torch.tensor([3.0, 4.0, 0.0])
    x = torch.sparse_coo_tensor(places, values, (2, 3), check_invariants=True).coalesce()
    found = Scaling.of(x)(x).to_dense()
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.0, 0.0]]))


def correlation(dataset: Dataset) -> float:
    """Of the ends of all edges, column by column in loops, the columns at one scale."""
    graph = dataset.graphs[0]
    x = Scaling.of(graph.x)(graph.x).double()
    pairs = [(int(i), int(j)) for i, j in graph.edge_index.T]
    covariance = variance = 0.0
    for column in x.T.tolist():
        mean = sum(column[i] + column[j] for i, j in pairs) / (2 * len(pairs))
        covariance += sum((column[i] - mean) * (column[j] - mean) for i, j in pairs)
        variance += sum((column[i] - mean) ** 2 + (column[j] - mean) ** 2 for i, j in pairs) / 2
    return covariance / variance


@pytest.mark.parametrize("size", [1.0, 1e18])
def test_likeness_of_linked_nodes_is_the_correlation_of_their_features(size: float) -> None:
    dataset = planted_graph(60, 3, seed=0)
    (graph,) = dataset.graphs
    graph.x = size * graph.x
    assert assortativity(dataset) == pytest.approx(correlation(dataset), abs=1e-5)
    words = (graph.x > 0).float()
    bag = planted_with(dataset, words)
    assert assortativity(planted_with(dataset, words.to_sparse().coalesce())) == pytest.approx(
        correlation(bag), abs=1e-5
    )


def planted_with(dataset: Dataset, x: Tensor) -> Dataset:
    graph = dataset.graphs[0].clone()
    graph.x = x
    return replace(dataset, graphs=[graph])


def test_nodes_without_links_or_with_equal_features_are_not_alike() -> None:
    dataset = planted_graph(60, 3, seed=0)
    (graph,) = dataset.graphs
    assert assortativity(planted_with(dataset, torch.ones(60, 2))) == 0
    graph.edge_index = graph.edge_index[:, :0]
    assert assortativity(dataset) == 0


@quick
@given(seeds, st.integers(2, 30), st.integers(0, 60), st.integers(1, 4))
def test_homophily_is_assortativity_by_class(seed: int, n: int, m: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(-1, classes, (n,), generator=generator)
    y[0] = 0
    edges = torch.randint(n, (2, m), generator=generator)
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    graph: Any = nx.MultiDiGraph([(i, j) for i, j in edges.t().tolist() if min(y[i], y[j]) >= 0])
    nx.set_node_attributes(graph, dict(enumerate(y.tolist())), "y")
    mixed = len({int(y[node]) for node in graph}) > 1
    expected = nx.attribute_assortativity_coefficient(graph, "y") if mixed else 0.0
    assert homophily(y, edges) == pytest.approx(expected)
