"""Coordinates for nodes without features."""

import networkx as nx
import numpy as np
import torch
from hypothesis import given
from torch_geometric.data import Data

from strategies import Graph, no_edges, quick, simple_graphs
from vepm.data import as_dataset
from vepm.data.canonical import NUM_POSITIONS, positions

TWO_CLIQUES = nx.disjoint_union(nx.complete_graph(6), nx.complete_graph(6))
TWO_CLIQUES.add_edge(0, 6)


def test_nodes_without_features_get_degrees_and_positions() -> None:
    dataset = as_dataset(TWO_CLIQUES)
    assert dataset.num_features == 2 + NUM_POSITIONS
    assert dataset.feature_names is not None
    assert dataset.feature_names[:3] == ("one", "log_degree", "position_1")


def test_a_dataset_passes_twice_unchanged() -> None:
    once = as_dataset(TWO_CLIQUES)
    assert as_dataset(once).num_features == once.num_features


def test_own_features_and_sets_of_graphs_get_none() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    assert as_dataset(Data(x=torch.ones(2, 3), edge_index=edges)).num_features == 3
    graphs = [Data(edge_index=edges, y=torch.tensor([c])) for c in (0, 1)]
    assert as_dataset(graphs).num_features == 2


def test_positions_tell_two_cliques_apart() -> None:
    second = as_dataset(TWO_CLIQUES).graphs[0].x[:, 3]
    assert (second[:6].sign() == second[0].sign()).all()
    assert (second[6:].sign() == -second[0].sign()).all()


@quick
@given(simple_graphs(min_nodes=1))
def test_positions_are_eigenvectors_of_the_normalised_adjacency(graph: Graph) -> None:
    found = positions(graph.edge_index, graph.num_nodes).double().numpy()
    assert np.isfinite(found).all()
    if graph.edge_index.size(1) == 0:
        assert not found.any()
        return
    dense = np.zeros((graph.num_nodes, graph.num_nodes))
    dense[graph.edge_index[1], graph.edge_index[0]] = 1
    scale = dense.sum(1).clip(1) ** -0.5
    vectors = found[:, : graph.num_nodes] / graph.num_nodes**0.5
    values = (vectors * (scale[:, None] * dense * scale @ vectors)).sum(0)
    exact = np.sort(np.linalg.eigvalsh(scale[:, None] * dense * scale))[::-1]
    np.testing.assert_allclose(values, exact, atol=1e-5)


def test_no_edges_and_no_nodes_have_no_positions() -> None:
    assert not positions(no_edges(3).edge_index, 3).any()
    assert positions(no_edges(0).edge_index, 0).shape == (0, NUM_POSITIONS)
