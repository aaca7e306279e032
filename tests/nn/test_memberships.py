"""Who belongs where, by loops over nodes and communities."""

import math

import torch
from hypothesis import given

from strategies import (
    GraphBatch,
    batches,
    complete,
    no_edges,
    quick,
    random_graph,
    undirected,
    uniform,
)
from vepm.nn import interactions, members

ACTIVATION = torch.tensor([1.0, 0.5, 2.0])
SEGMENTS = ((0, 1), (2,))


@quick
@given(batches())
def test_interactions_sum_over_all_nodes_of_the_graph(joined: GraphBatch) -> None:
    z = uniform(0, joined.batch.numel(), 3).float()
    found = interactions(z, ACTIVATION, 2, joined.batch)
    for u in range(z.size(0)):
        for k, segment in enumerate(SEGMENTS):
            expected = sum(
                float(ACTIVATION[c] * z[u, c] * z[v, c])
                for v in range(z.size(0))
                if joined.batch[v] == joined.batch[u]
                for c in segment
            )
            torch.testing.assert_close(float(found[u, k]), expected, rtol=1e-4, atol=1e-5)


def test_members_would_be_joined_more_often_than_nodes_at_random() -> None:
    graph = random_graph(9)
    z = uniform(1, 9, 3, low=0.05, high=0.9).float()
    density = graph.edge_index.size(1) / (9 * 8)
    found = members(z, ACTIVATION, 2, graph.edge_index)
    for u in range(9):
        for k, segment in enumerate(SEGMENTS):
            rate = sum(float(ACTIVATION[c] * z[u, c] ** 2) for c in segment)
            assert bool(found[u, k]) == (1 - math.exp(-rate) >= density)
    assert found.any()
    assert not found.all()


def test_a_batch_is_judged_graph_by_graph() -> None:
    one, two = random_graph(6), random_graph(7, seed=1)
    z = uniform(2, 13, 3, low=0.05, high=0.9).float()
    edges = torch.cat([one.edge_index, two.edge_index + 6], dim=1)
    batch = torch.tensor([0] * 6 + [1] * 7)
    together = members(z, ACTIVATION, 2, edges, batch)
    apart = [
        members(z[:6], ACTIVATION, 2, one.edge_index),
        members(z[6:], ACTIVATION, 2, two.edge_index),
    ]
    assert together.equal(torch.cat(apart))


def test_no_edges_no_members_and_a_complete_graph_is_finite() -> None:
    z = torch.ones(4, 3)
    assert not members(z, ACTIVATION, 2, no_edges(4).edge_index).any()
    assert members(z, ACTIVATION, 2, complete(4).edge_index).shape == (4, 2)


def test_density_is_the_share_of_pairs_that_are_joined() -> None:
    """Four of six pairs, two of three, one of one: rates just above and below the threshold."""
    pairs = {4: [(0, 1), (1, 2), (2, 3), (3, 0)], 3: [(0, 1), (1, 2)], 5: [(0, 1)]}
    for nodes, edges in pairs.items():
        graph = undirected(edges, nodes)
        threshold = -math.log1p(-len(edges) / (nodes * (nodes - 1) / 2))
        for factor, expected in ((1.001, True), (0.999, False)):
            z = torch.full((nodes, 1), math.sqrt(factor * threshold), dtype=torch.float64)
            assert (members(z, torch.ones(1).double(), 1, graph.edge_index) == expected).all()


def test_everybody_is_a_member_where_the_threshold_is_met_exactly() -> None:
    graph = complete(3)
    z = torch.full((3, 1), 6.0, dtype=torch.float64)
    # Of a complete graph the density counts as just below one: -log(1e-12) is about 27.6.
    assert members(z, torch.ones(1).double(), 1, graph.edge_index).all()
    assert not members(z / 1.2, torch.ones(1).double(), 1, graph.edge_index).any()
