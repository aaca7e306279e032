"""Inference in chunks gives what the whole graph at once gives."""

from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from strategies import no_edges, undirected
from vepm.data import planted_graph
from vepm.nn import VEPM
from vepm.runs import neighbourhood
from vepm.scale.chunks import Chunk, chunks
from vepm.scale.large import LargeGraph
from vepm.training import Config, ModelCard, explain, fit, probabilities, scores, single_graph

OPTIONS: list[dict[str, Any]] = [
    {},
    {"conv": "gin", "normalize": "none"},
    {"composer": "weighted", "conv": "sage", "hops": 1},
    {"normalize": "graph"},
    {"normalize": "neighbours", "inputs": "softmax"},
    {"composer": "fc", "inputs": "mass"},
    {"bank_layers": 2, "composer_layers": 2},
    {"hops": 3, "node_dropout": 0.5},
    {"inputs": "z"},
    {"inputs": "x", "feature_norm": "none"},
    {"partition": "even"},
    {"composer": "weighted", "composer_layers": 2, "hops": 2},
    {"composer": "weighted", "conv": "gin", "normalize": "none", "hops": 1},
    {"shares": "posterior", "temperature": 0.5, "composer": "weighted"},
    {"interactions": "matrix"},
    {"interactions": "matrix", "shares": "posterior"},
]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.scale.chunks.EDGES_AT_ONCE", 200)


def graph() -> Data:
    found = planted_graph(150, 3, num_features=7, seed=0).graphs[0].clone()
    found.x = found.x.double()
    return found


@pytest.mark.parametrize("nodes", [40, 41, 150, 151])
def test_chunks_hold_every_node_once_and_in_order(nodes: int) -> None:
    large = LargeGraph(planted_graph(nodes, 1, num_features=2, seed=0).graphs[0])
    found = [(chunk.rows.start, chunk.rows.stop) for chunk in chunks(large)]
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == nodes


@pytest.mark.parametrize("count", [1, 3, 6, 40])
def test_neighbourhood_has_so_many_nodes_the_nearest_first(count: int) -> None:
    """Two paths of three nodes: 0-1-2 and 3-4-5."""
    links = undirected([(0, 1), (1, 2), (3, 4), (4, 5)], 6).edge_index
    large = LargeGraph(Data(x=torch.ones(6, 1), edge_index=coalesce(links, sort_by_row=False)))
    expected = {1: [4], 3: [3, 4, 5], 6: [*range(6)], 40: [*range(6)]}
    assert neighbourhood(large, 4, count).tolist() == expected[count]


def model(**changes: Any) -> VEPM:
    """A model in whose norms something has been measured."""
    config = Config().replace(
        num_communities=5, num_metacommunities=2, hidden_channels=8, encoder_channels=6, **changes
    )
    torch.manual_seed(0)
    built = ModelCard("node", 7, config, ("a", "b", "c")).build().double().train()
    batch = single_graph(graph())
    built(batch.x, batch.edges)
    return built.eval()


@pytest.mark.parametrize("changes", OPTIONS)
def test_chunks_give_what_the_whole_graph_gives(changes: dict[str, Any]) -> None:
    built, data = model(**changes), graph()
    large = LargeGraph(data)
    assert len(list(chunks(large))) > 5
    whole, found = explain(built, single_graph(data)), explain(built, large)
    for name, expected in whole._asdict().items():
        torch.testing.assert_close(getattr(found, name), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        scores(built, large), scores(built, single_graph(data)), rtol=1e-10, atol=1e-12
    )


def test_draws_are_those_of_the_whole_graph() -> None:
    built, data = model(), graph()
    whole = probabilities(built, single_graph(data), num_samples=3, seed=5)
    found = probabilities(built, LargeGraph(data), num_samples=3, seed=5)
    torch.testing.assert_close(found, whole, rtol=1e-10, atol=1e-12)


def test_mostly_zero_features_are_read_too() -> None:
    data = graph()
    data.x = (data.x > 3).double() * data.x
    built = model()
    torch.testing.assert_close(
        scores(built, LargeGraph(data)), scores(built, single_graph(data)), rtol=1e-10, atol=1e-12
    )


def test_sparse_features_are_read_too() -> None:
    data = graph()
    data.x = ((data.x > 3).double() * data.x).to_sparse().coalesce()
    built = model()
    torch.testing.assert_close(
        scores(built, LargeGraph(data)), scores(built, single_graph(data)), rtol=1e-10, atol=1e-12
    )
    dataset = planted_graph(150, 3, num_features=7, seed=0)
    dataset.graphs[0].x = data.x.float()
    config = Config().replace(
        num_communities=4, num_metacommunities=2, batch_size=50, pretrain_epochs=1, epochs=1
    )
    rows = dataset.graphs[0].train_mask.nonzero().flatten()
    assert len(fit(dataset, config, train_on=rows, device="cpu").history) == 2


def test_chunks_hold_every_node_once_and_few_edges() -> None:
    large = LargeGraph(graph())
    found = list(chunks(large))
    assert [row for chunk in found for row in range(150)[chunk.rows]] == list(range(150))
    assert sum(chunk.edges.source.numel() for chunk in found) == large.num_edges
    assert max(chunk.edges.source.numel() + chunk.count for chunk in found) <= 200


def test_a_node_with_more_neighbours_than_fit_is_a_chunk_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vepm.scale.chunks.EDGES_AT_ONCE", 1)
    large = LargeGraph(graph())
    assert [chunk.count for chunk in chunks(large)] == [1] * 150


def test_a_chunk_has_the_neighbours_of_its_nodes_after_them() -> None:
    data = Data(
        x=torch.zeros(4, 1), edge_index=torch.tensor([[1, 0, 3, 2], [0, 1, 2, 3]]), y=torch.zeros(4)
    )
    chunk = Chunk(LargeGraph(data), 1, 3)
    assert chunk.everyone.tolist() == [1, 2, 0, 3]
    assert chunk.edges.edge_index.tolist() == [[2, 3], [0, 1]]


def test_a_graph_without_edges_is_no_exception() -> None:
    data = graph()
    data.edge_index = no_edges(150).edge_index
    built = model()
    torch.testing.assert_close(
        scores(built, LargeGraph(data)), scores(built, single_graph(data)), rtol=1e-10, atol=1e-12
    )
