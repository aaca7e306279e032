"""Clusters cover the graph, are of about equal size, and cut few edges where they can."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strategies import no_edges, path, quick, random_graph, seeds
from vepm.data import load, planted_graph
from vepm.scale.large import SLACK, cluster_nodes


def rows_of(edge_index: Tensor, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    order = torch.argsort(edge_index[1], stable=True)
    count = torch.bincount(edge_index[1], minlength=num_nodes)
    pointer = torch.nn.functional.pad(count.cumsum(0), (1, 0))
    return pointer.numpy(), edge_index[0, order].int().numpy()


@quick
@given(st.integers(1, 40), st.integers(1, 12), st.floats(0, 0.5), seeds)
def test_every_node_is_in_a_cluster_of_bounded_size(
    nodes: int, count: int, density: float, seed: int
) -> None:
    graph = random_graph(nodes, density, seed)
    found = cluster_nodes(*rows_of(graph.edge_index, nodes), count, seed)
    sizes = np.bincount(found)
    assert found.shape == (nodes,)
    assert sizes.min() >= 1
    assert len(sizes) <= min(count, nodes)
    assert sizes.max() <= max(np.ceil(SLACK * nodes / min(count, nodes)), 1)


def test_the_same_seed_gives_the_same_clusters() -> None:
    rows = rows_of(load("KarateClub").graphs[0].edge_index, 34)
    assert np.array_equal(cluster_nodes(*rows, 4, 1), cluster_nodes(*rows, 4, 1))


def test_a_path_is_cut_into_stretches() -> None:
    found = cluster_nodes(*rows_of(path(40).edge_index, 40), 4)
    assert (found[1:] != found[:-1]).sum() <= 6


def test_a_graph_without_edges_is_cut_evenly() -> None:
    found = cluster_nodes(*rows_of(no_edges(12).edge_index, 12), 3)
    assert np.bincount(found).tolist() == [4, 4, 4]


@pytest.mark.parametrize(("name", "kept"), [("digits", 0.7), ("communities", 0.5)])
def test_most_neighbours_stay_together_where_there_are_communities(name: str, kept: float) -> None:
    dataset = load("digits") if name == "digits" else planted_graph(4000, 40, seed=0)
    graph = dataset.graphs[0]
    found = cluster_nodes(*rows_of(graph.edge_index, int(graph.x.size(0))), 10)
    source, target = graph.edge_index.numpy()
    assert (found[source] == found[target]).mean() > kept
