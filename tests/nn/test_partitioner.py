"""How edges are split among metacommunities."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strategies import (
    Graph,
    complete,
    directed_graphs,
    join,
    no_edges,
    path,
    quick,
    random_graph,
    seeds,
    undirected,
    uniform,
)
from vepm.kernels.shares import normal_on_nodes, uniform_on_edges
from vepm.nn import Adjacency, EdgePartitioner, segment_sizes
from vepm.nn.partitioner import PARTITIONS, SHARES, interactions

GRAPH = random_graph(8)


def loop_shares(z: Tensor, activation: Tensor, graph: Graph, heads: int, tau: float) -> Tensor:
    """Shares from an explicit loop over edges, metacommunities and their communities."""
    sizes = segment_sizes(z.size(1), heads)
    rows = []
    for i, j in graph.edge_index.t().tolist():
        rates, start = [], 0
        for size in sizes:
            segment = range(start, start + size)
            rates.append(sum(float(activation[c] * z[i, c] * z[j, c]) for c in segment))
            start += size
        scores = [math.exp((rate - max(rates)) / tau) for rate in rates]
        rows.append([score / sum(scores) for score in scores])
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, heads)


def test_hand_computed_split() -> None:
    # Rates 2 * 1 * 3 = 6 and 0.5 * 2 * 4 = 4, temperature 2: shares e^3 : e^2.
    z = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    shares = EdgePartitioner(num_metacommunities=2, temperature=2.0)(
        z, torch.tensor([2.0, 0.5]), torch.tensor([[0, 1], [1, 0]])
    )
    first = math.e / (1 + math.e)
    torch.testing.assert_close(shares, torch.tensor([[first, 1 - first]] * 2))


@given(directed_graphs(), st.integers(1, 4), st.floats(0.1, 10), seeds)
@quick
def test_learned_split_equals_an_explicit_loop_over_unequal_segments(
    graph: Graph, heads: int, tau: float, seed: int
) -> None:
    z, activation = uniform(seed, graph.num_nodes, 10), uniform(seed + 1, 10)
    shares = EdgePartitioner(heads, tau)(z, activation, graph.edge_index)
    torch.testing.assert_close(shares, loop_shares(z, activation, graph, heads, tau))
    assert EdgePartitioner(heads, tau)(z, activation, Adjacency(*graph)).equal(shares)


def loop_rates(z: Tensor, between: Tensor, graph: Graph, assignment: Tensor) -> Tensor:
    """Rates from an explicit loop over edges and pairs of communities."""
    rows = torch.zeros(graph.edge_index.size(1), assignment.size(1), dtype=torch.float64)
    for row, (i, j) in zip(rows, graph.edge_index.t().tolist(), strict=True):
        for c, d in itertools.product(range(z.size(1)), repeat=2):
            row += between[c, d] * z[i, c] * z[j, d] * (assignment[c] + assignment[d]) / 2
    return rows


@pytest.mark.parametrize("learned", [False, True])
def test_interactions_of_two_communities_count_half_for_the_part_of_each(learned: bool) -> None:
    z, between = uniform(0, 8, 5), uniform(1, 5, 5)
    between = between + between.T
    partition = EdgePartitioner(3, num_communities=5 if learned else None).double()
    grouping = partition.grouping()
    assignment = (
        torch.eye(3)[[0, 0, 1, 1, 2]].double() if isinstance(grouping, int) else grouping.detach()
    )
    rates = partition.rates(z, between, GRAPH.edge_index)
    torch.testing.assert_close(rates, loop_rates(z, between, GRAPH, assignment))
    shares = partition(z, between, GRAPH.edge_index)
    torch.testing.assert_close(shares, torch.softmax(rates, dim=1))


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("shares", SHARES)
def test_diagonal_interactions_split_like_activations(shares: str, learned: bool) -> None:
    z, activation = uniform(0, 8, 5), uniform(1, 5)
    partition = EdgePartitioner(3, shares=shares, num_communities=5 if learned else None).double()
    one = partition(z, activation, GRAPH.edge_index)
    torch.testing.assert_close(partition(z, torch.diag(activation), GRAPH.edge_index), one)
    grouping = partition.grouping()
    torch.testing.assert_close(
        interactions(z, torch.diag(activation), grouping), interactions(z, activation, grouping)
    )


def test_segments_differ_by_at_most_one() -> None:
    assert segment_sizes(10, 4) == [3, 3, 2, 2]
    for communities in range(1, 12):
        for heads in range(1, communities + 1):
            sizes = segment_sizes(communities, heads)
            assert sum(sizes) == communities
            assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("scheme", PARTITIONS[:3][:3])
@pytest.mark.parametrize("graph", [GRAPH, complete(5), no_edges(3)])
def test_shares_of_an_edge_sum_to_one(scheme: str, graph: Graph) -> None:
    z, activation = uniform(0, graph.num_nodes, 7), uniform(1, 7)
    shares = EdgePartitioner(3, 1.0, scheme)(z, activation, graph.edge_index)
    assert shares.shape == (graph.edge_index.size(1), 3)
    assert (shares >= 0).all()
    torch.testing.assert_close(shares.sum(1), torch.ones(len(shares), dtype=torch.float64))


@pytest.mark.parametrize("scheme", PARTITIONS[:3][:3])
def test_parts_add_up_to_the_adjacency_matrix(scheme: str) -> None:
    z, n = uniform(0, GRAPH.num_nodes, 7), GRAPH.num_nodes
    shares = EdgePartitioner(3, 1.0, scheme)(z, uniform(1, 7), GRAPH.edge_index)
    parts = torch.zeros(3, n, n, dtype=torch.float64)
    parts[:, GRAPH.edge_index[0], GRAPH.edge_index[1]] = shares.t()
    adjacency = torch.zeros(n, n, dtype=torch.float64)
    adjacency[GRAPH.edge_index[0], GRAPH.edge_index[1]] = 1
    torch.testing.assert_close(parts.sum(0), adjacency)
    torch.testing.assert_close(parts, parts.transpose(1, 2))


def test_low_temperature_gives_the_edge_to_the_strongest_and_high_splits_evenly() -> None:
    z, activation = uniform(0, GRAPH.num_nodes, 6), uniform(1, 6)
    rates = EdgePartitioner(3).rates(z, activation, GRAPH.edge_index)
    hard = EdgePartitioner(3, temperature=1e-6)(z, activation, GRAPH.edge_index)
    strongest = torch.nn.functional.one_hot(rates.argmax(1), 3).double()
    torch.testing.assert_close(hard, strongest)
    soft = EdgePartitioner(3, temperature=1e9)(z, activation, GRAPH.edge_index)
    torch.testing.assert_close(soft, torch.full_like(soft, 1 / 3))


def test_even_split_ignores_the_affiliations() -> None:
    shares = EdgePartitioner(4, scheme="even")(uniform(0, 8, 9), uniform(1, 9), GRAPH.edge_index)
    torch.testing.assert_close(shares, torch.full_like(shares, 0.25))


def test_gradients_match_finite_differences() -> None:
    def split(z: Tensor, activation: Tensor) -> Tensor:
        shares: Tensor = EdgePartitioner(3, 0.7)(z, activation, path(4).edge_index)
        return shares

    inputs = (uniform(0, 4, 7).requires_grad_(), uniform(1, 7).requires_grad_())
    assert torch.autograd.gradcheck(split, inputs)


def test_random_split_is_fixed_symmetric_and_ignores_the_affiliations() -> None:
    half = GRAPH.edge_index.size(1) // 2
    partition = EdgePartitioner(3, 20.0, "random")
    first = partition(uniform(0, 8, 6), uniform(1, 6), GRAPH.edge_index)
    again = EdgePartitioner(3, 20.0, "random")(uniform(2, 8, 6), uniform(3, 6), GRAPH.edge_index)
    assert first.equal(again)
    assert first[:half].equal(first[half:])
    assert first[:half].unique(dim=0).size(0) == half


def test_random_split_is_a_softmax_of_rates_up_to_a_hundred() -> None:
    draws = uniform_on_edges(Adjacency(*GRAPH), None, 3)
    shares = EdgePartitioner(3, 20.0, "random")(uniform(0, 8, 6), uniform(1, 6), GRAPH.edge_index)
    torch.testing.assert_close(shares, torch.softmax(100 * draws / 20.0, dim=1))


def test_random_split_of_a_batch_is_that_of_each_graph() -> None:
    batch = join([GRAPH, path(3), no_edges(2), complete(5), GRAPH])
    partition = EdgePartitioner(4, 20.0, "random")
    z, activation = uniform(0, batch.batch.numel(), 4), uniform(1, 4)
    together = partition(z, activation, batch.edge_index, batch.batch)
    alone = [partition(z[: g.num_nodes], activation, g.edge_index) for g in batch.graphs]
    assert together.equal(torch.cat(alone))


def test_random_split_differs_between_graphs_of_equal_size() -> None:
    one, other = path(6), undirected([(0, 1), (1, 2), (2, 3), (3, 4), (0, 5)], 6)
    first, second = (uniform_on_edges(Adjacency(*graph), None, 2) for graph in (one, other))
    # The first four edges of both join the same places.
    assert not (first[:4] == second[:4]).any()
    shuffled = one.edge_index[:, torch.randperm(10, generator=torch.Generator().manual_seed(0))]
    again = uniform_on_edges(Adjacency(shuffled, 6), None, 2)
    assert {tuple(row) for row in again.tolist()} == {tuple(row) for row in first.tolist()}


def test_noise_on_nodes_is_normal_fixed_and_of_its_graph() -> None:
    large = random_graph(300, 0.02)
    draws = normal_on_nodes(Adjacency(*large), None, 40)
    assert draws.equal(normal_on_nodes(Adjacency(*large), None, 40))
    assert abs(draws.mean()) < 4 / math.sqrt(draws.numel())
    assert abs(draws.var() - 1) < 4 * math.sqrt(2 / draws.numel())
    assert draws.isfinite().all()
    batch = join([GRAPH, path(8), no_edges(2), GRAPH])
    together = normal_on_nodes(Adjacency(batch.edge_index, 26), batch.batch, 3)
    alone = [normal_on_nodes(Adjacency(*graph), None, 3) for graph in batch.graphs]
    assert together.equal(torch.cat(alone))
    assert not (alone[0] == alone[1]).any()


def test_random_rates_are_uniform_and_unrelated() -> None:
    graph, heads = complete(150), 4
    draws = uniform_on_edges(Adjacency(*graph), None, heads)
    draws = draws[: graph.edge_index.size(1) // 2]
    values, count = draws.flatten().sort().values, draws.numel()
    assert 0 <= values[0] < values[-1] < 1
    assert values.unique().numel() == count
    assert abs(values.mean() - 1 / 2) < 4 / math.sqrt(12 * count)
    assert abs(values.var() - 1 / 12) < 4 / math.sqrt(180 * count)
    steps = torch.arange(1, count + 1) / count
    assert (values - steps).abs().max() < 1.63 / math.sqrt(count)  # Kolmogorov's 1 % point
    # Columns are metacommunities; the shifted copy is the next edge's draws.
    related = torch.corrcoef(torch.cat([draws, draws.roll(1, 0)], 1).t()) - torch.eye(2 * heads)
    assert related.abs().max() < 4.5 / math.sqrt(len(draws))


@pytest.mark.parametrize("heads", [0, 4, -1])
def test_more_metacommunities_than_communities_are_refused(heads: int) -> None:
    with pytest.raises(ValueError, match=r"between 1 and num_communities \(3\), got"):
        EdgePartitioner(heads)(torch.ones(2, 3), torch.ones(3), complete(2).edge_index)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_temperature_must_be_positive(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be positive"):
        EdgePartitioner(2, temperature)


def test_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="learned, even, random, kinds, got 'odd'"):
        EdgePartitioner(2, scheme="odd")


def affiliations(nodes: int, communities: int) -> Tensor:
    return torch.rand(nodes, communities, generator=torch.Generator().manual_seed(3)) + 0.1


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_posterior_shares_are_proportional_to_rates(temperature: float) -> None:
    graph = random_graph(6)
    z, activation = affiliations(6, 5), torch.rand(5) + 0.1
    partition = EdgePartitioner(2, temperature, shares="posterior")
    shares = partition(z, activation, graph.edge_index)
    rates = partition.rates(z, activation, graph.edge_index) ** (1 / temperature)
    torch.testing.assert_close(shares, rates / rates.sum(1, keepdim=True))


@pytest.mark.parametrize("shares", SHARES)
def test_a_hard_assignment_equals_segments(shares: str) -> None:
    graph = random_graph(6)
    z, activation = affiliations(6, 5), torch.rand(5) + 0.1
    segments = EdgePartitioner(2, shares=shares)
    learned = EdgePartitioner(2, shares=shares, num_communities=5)
    assert learned.assignment_logit is not None
    with torch.no_grad():
        learned.assignment_logit.mul_(100)
    torch.testing.assert_close(
        learned(z, activation, graph.edge_index), segments(z, activation, graph.edge_index)
    )


def test_a_learned_assignment_starts_at_segments_and_can_be_reset() -> None:
    partition = EdgePartitioner(2, num_communities=5)
    start = partition.grouping()
    assert isinstance(start, Tensor)
    assert start.argmax(1).tolist() == [0, 0, 0, 1, 1]
    torch.testing.assert_close(start.sum(1), torch.ones(5))
    assert partition.assignment_logit is not None
    with torch.no_grad():
        partition.assignment_logit.normal_()
    partition.reset_parameters()
    torch.testing.assert_close(partition.grouping(), start)


def test_interactions_by_an_assignment_equal_those_by_segments() -> None:
    z, activation = affiliations(4, 6), torch.rand(6)
    by_matrix = interactions(z, activation, torch.eye(3)[[0, 0, 1, 1, 2, 2]])
    torch.testing.assert_close(by_matrix, interactions(z, activation, 3))


def test_kinds_split_an_edge_equally_among_its_own() -> None:
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    kinds = torch.tensor([[True, False], [True, True], [False, False]])
    partition = EdgePartitioner(2, scheme="kinds")
    shares = partition(affiliations(3, 2), torch.ones(2), Adjacency(edge_index, 3, kinds=kinds))
    assert shares.tolist() == [[1, 0], [0.5, 0.5], [0.5, 0.5]]


def test_kinds_need_a_graph_that_has_them() -> None:
    partition = EdgePartitioner(2, scheme="kinds")
    edge_index = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="needs a graph that says"):
        partition(affiliations(2, 2), torch.ones(2), edge_index)
    three = Adjacency(edge_index, 2, kinds=torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="the edges are of 3 kinds"):
        partition(affiliations(2, 2), torch.ones(2), three)


def test_the_background_starts_as_a_part_of_its_own() -> None:
    partition = EdgePartitioner(3, num_communities=6, num_background=1)
    grouping = partition.grouping()
    assert isinstance(grouping, Tensor)
    assert grouping.argmax(1).tolist() == [0, 0, 0, 1, 1, 2]
    single = EdgePartitioner(1, num_communities=6, num_background=1).grouping()
    assert isinstance(single, Tensor)
    assert torch.equal(single, torch.ones(6, 1))


def test_edges_that_no_community_explains_go_to_the_background() -> None:
    # Nodes 0 and 1 share a community; 2 shares none with them.
    z = torch.tensor([[1.0, 0.0, 0.1], [1.0, 0.0, 0.1], [0.0, 1.0, 0.1]])
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    partition = EdgePartitioner(3, 0.25, shares="posterior", num_communities=3, num_background=1)
    with torch.no_grad():
        assert partition.assignment_logit is not None
        partition.assignment_logit.mul_(100)
    shares = partition(z, torch.ones(3), edges)
    assert shares[:2, 0].min() > 0.99
    assert shares[2:, 2].min() > 0.99


def test_a_community_of_all_nodes_alike_tells_none_apart() -> None:
    z = torch.tensor([[1.0, 0.2, 3.0], [0.5, 2.0, 3.0]])
    found = interactions(z, torch.ones(3), 3)
    assert torch.equal(found[:, :2], interactions(z[:, :2], torch.ones(2), 2))
    assert torch.equal(found[:, 2], torch.zeros(2))
    assert interactions(z[:1], torch.ones(3), 3).min() > 0
