"""The objective against the dense double loop over pairs of nodes, which lives only here."""

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Weibull

from strategies import (
    Graph,
    GraphBatch,
    LargestTensor,
    batches,
    complete,
    join,
    no_edges,
    path,
    quick,
    random_graph,
    raw_graphs,
    seeds,
    undirected,
    uniform,
)
from vepm.nn import Adjacency
from vepm.objective import (
    _as_both_ends,
    edge_log_likelihood,
    partial_edge_log_likelihood,
    subsampled_edge_log_likelihood,
)


def as_matrix(activation: Tensor) -> Tensor:
    return activation if activation.dim() == 2 else torch.diag(activation)


def symmetric(seed: int, size: int) -> Tensor:
    """Interactions between communities."""
    half = uniform(seed, size, size)
    return half + half.T


def activations(seed: int, size: int, matrix: bool) -> Tensor:
    return symmetric(seed, size) if matrix else uniform(seed, size)


def dense(
    z: Tensor,
    activation: Tensor,
    graph: Graph,
    balanced: bool = False,
    mean: Tensor | None = None,
) -> float:
    """Double loop over i < j."""
    z, matrix = z.detach(), as_matrix(activation.detach())
    mean = z if mean is None else mean
    on, off = [], []
    for pair in itertools.combinations(range(graph.num_nodes), 2):
        i, j = pair
        if pair in graph.pairs:
            on.append(math.log(-math.expm1(-float(z[i] @ matrix @ z[j]))))
        else:
            off.append(-float(mean[i] @ matrix @ mean[j]))
    if balanced:
        return (math.fsum(on) / max(len(on), 1) + math.fsum(off) / max(len(off), 1)) / 2
    return math.fsum(on) + math.fsum(off)


def assert_equal(value: Tensor, expected: list[float]) -> None:
    assert value.dtype == torch.float64
    assert value.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-11)


@given(raw_graphs(), st.integers(1, 5), st.booleans(), st.booleans(), st.booleans(), seeds)
@quick
def test_edge_likelihood_equals_double_loop_whatever_loops_and_repeats(
    graph: Graph, communities: int, matrix: bool, balanced: bool, analytic: bool, seed: int
) -> None:
    z = uniform(seed, graph.num_nodes, communities)
    activation = activations(seed, communities, matrix)
    mean = uniform(seed + 1, graph.num_nodes, communities) if analytic else None
    value = edge_log_likelihood(z, activation, graph.edge_index, balanced=balanced, mean=mean)
    assert_equal(value, [dense(z, activation, graph, balanced, mean)])


@given(batches(min_nodes=0), st.booleans(), st.booleans(), st.booleans(), seeds)
@quick
def test_edge_likelihood_of_a_batch_is_one_value_per_graph(
    batch: GraphBatch, matrix: bool, balanced: bool, analytic: bool, seed: int
) -> None:
    sizes = [g.num_nodes for g in batch.graphs]
    z, activation = uniform(seed, sum(sizes), 3), activations(seed, 3, matrix)
    mean = uniform(seed + 1, sum(sizes), 3)
    value = edge_log_likelihood(
        z,
        activation,
        batch.edge_index,
        batch.batch,
        balanced=balanced,
        mean=mean if analytic else None,
        num_graphs=len(sizes),
    )
    parts = zip(batch.graphs, z.split(sizes), mean.split(sizes), strict=True)
    expected = [dense(a, activation, g, balanced, m if analytic else None) for g, a, m in parts]
    assert_equal(value, expected)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize(
    "graph",
    [no_edges(0), no_edges(1), no_edges(6), complete(2), complete(6), path(6), random_graph(25)],
    ids=["no node", "one node", "no edge", "one edge", "complete", "path", "random"],
)
@pytest.mark.parametrize("matrix", [False, True])
def test_edge_likelihood_of_special_graphs(graph: Graph, balanced: bool, matrix: bool) -> None:
    z, activation = uniform(0, graph.num_nodes, 4), activations(1, 4, matrix)
    expected = [dense(z, activation, graph, balanced)]
    for edges in graph.edge_index, Adjacency(*graph):
        value = edge_log_likelihood(z, activation, edges, balanced=balanced)
        assert_equal(value, expected)


def test_diagonal_interactions_are_activations() -> None:
    z, mean, activation = uniform(0, 9, 4), uniform(2, 9, 4), uniform(1, 4)
    edges = random_graph(9).edge_index
    one = edge_log_likelihood(z, activation, edges, mean=mean)
    torch.testing.assert_close(
        edge_log_likelihood(z, torch.diag(activation), edges, mean=mean), one, rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("rate", [1e-300, 1e-12, 1e-3, 1.0, 100.0, 1e8])
def test_edge_likelihood_is_accurate_at_extreme_rates(rate: float) -> None:
    z = torch.full((2, 1), math.sqrt(rate), dtype=torch.float64, requires_grad=True)
    value = edge_log_likelihood(z, torch.ones(1, dtype=torch.float64), complete(2).edge_index)
    value.backward()
    assert z.grad is not None
    slope = math.exp(-rate) / -math.expm1(-rate) * math.sqrt(rate)
    assert z.grad.flatten().tolist() == pytest.approx([slope] * 2, rel=1e-9, abs=1e-15)
    # The first line holds to 1e-24 in relative terms at small rates, the second at large ones.
    small = rate < 1e-6
    expected = math.log(rate) - rate / 2 if small else math.log1p(-math.exp(-rate))
    assert value.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("rate", [1e-12, 100.0, 1e6])
def test_single_precision_stays_finite_at_extreme_rates(rate: float) -> None:
    z = torch.full((4, 2), math.sqrt(rate / 2), requires_grad=True)
    value = edge_log_likelihood(z, torch.ones(2), path(4).edge_index)
    value.backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert value.item() == pytest.approx(3 * math.log(-math.expm1(-rate)) - 3 * rate, rel=1e-5)


def test_cost_is_linear_in_nodes() -> None:
    nodes, communities = 200_000, 2
    z = torch.full((nodes, communities), 1e-3, dtype=torch.float64, requires_grad=True)
    activation = torch.ones(communities, dtype=torch.float64)
    with LargestTensor() as largest:
        value = edge_log_likelihood(z, activation, path(3).edge_index)
        value.backward()
    rate, pairs = 2e-6, nodes * (nodes - 1) / 2
    assert value.item() == pytest.approx(2 * math.log(rate) - (pairs - 2) * rate, rel=1e-6)
    assert 0 < largest.size <= 2 * nodes * communities


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("matrix", [False, True])
def test_gradients_of_edge_likelihood_match_finite_differences(
    balanced: bool, matrix: bool
) -> None:
    batch = join([random_graph(5), complete(3), no_edges(2)])

    def value(z: Tensor, activation: Tensor, mean: Tensor) -> Tensor:
        between = activation + activation.T if matrix else activation
        return edge_log_likelihood(
            z, between, batch.edge_index, batch.batch, balanced=balanced, mean=mean
        )

    activation = uniform(1, 3, 3) if matrix else uniform(1, 3)
    inputs = [uniform(0, 10, 3), activation, uniform(2, 10, 3)]
    assert torch.autograd.gradcheck(value, [t.requires_grad_() for t in inputs])


def test_mean_gives_the_expected_non_edge_part() -> None:
    torch.manual_seed(0)
    graph, copies = random_graph(6), 20_000
    posterior = Weibull(uniform(0, 6, 3), uniform(1, 6, 3, low=0.8, high=3.0))
    batch = join([Graph(graph.edge_index, 6)] * copies)
    z, activation = posterior.rsample(torch.Size([copies])).flatten(0, 1), uniform(2, 3)
    mean = posterior.mean.repeat(copies, 1)
    sampled = edge_log_likelihood(z, activation, batch.edge_index, batch.batch)
    analytic = edge_log_likelihood(z, activation, batch.edge_index, batch.batch, mean=mean)
    gap = sampled - analytic
    assert gap.std() > 0.1
    assert gap.mean().abs() < 4 * gap.std() / math.sqrt(copies)


@pytest.mark.parametrize("graph", [random_graph(9), no_edges(4), complete(4)])
def test_subsample_of_all_nodes_is_exact(graph: Graph) -> None:
    torch.manual_seed(0)
    z, activation = uniform(0, graph.num_nodes, 3).requires_grad_(), uniform(1, 3).requires_grad_()
    value = subsampled_edge_log_likelihood(
        z, activation, Adjacency(*graph), num_nodes=5000, importance=0.5
    )
    assert_equal(value.detach(), [dense(z, activation, graph, balanced=True)])
    exact = edge_log_likelihood(z, activation, graph.edge_index, balanced=True)
    for ours, theirs in zip(
        torch.autograd.grad(value, [z, activation]),
        torch.autograd.grad(exact, [z, activation]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def published_probabilities(degree: Tensor, importance: float) -> Tensor:
    q = degree / degree.sum()
    return importance * q + (1 - importance) * (1 - q) / (degree.numel() - 1)


def asked_probabilities(
    monkeypatch: pytest.MonkeyPatch, graphs: list[Graph], importance: float
) -> Tensor:
    """Those of the nodes of each graph [G, most], from which 200 are drawn with replacement."""
    asked, real = [], torch.multinomial

    def spy(p: Tensor, num_samples: int, replacement: bool) -> Tensor:
        assert (num_samples, replacement) == (200, True)
        asked.append(p)
        return real(p, num_samples, replacement)

    monkeypatch.setattr(torch, "multinomial", spy)
    joined = join(graphs)
    subsampled_edge_log_likelihood(
        uniform(0, joined.batch.numel(), 2),
        uniform(1, 2),
        Adjacency(joined.edge_index, joined.batch.numel()),
        joined.batch,
        len(graphs),
        importance=importance,
    )
    [p] = asked
    return p


@pytest.mark.parametrize("importance", [0.9, 0.3, 1.0])
def test_subsample_asks_for_the_published_probabilities(
    importance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = undirected([(0, 1), (0, 2), (0, 3), (1, 2)], 5)
    p = asked_probabilities(monkeypatch, [graph], importance)
    degree = torch.tensor([3, 2, 2, 1, 0], dtype=torch.float64)
    torch.testing.assert_close(p, published_probabilities(degree, importance)[None])
    assert p.sum().item() == pytest.approx(1)


def test_subsample_draws_pairs_as_often_as_published() -> None:
    torch.manual_seed(0)
    graph, draws = undirected([(0, 1), (0, 2), (0, 3), (1, 2)], 4), 500
    p = published_probabilities(torch.tensor([3.0, 2.0, 2.0, 1.0]), 0.9).tolist()
    # Two draws from nodes of distinct z: the value tells which two they were.
    z, one = torch.tensor([[0.5], [0.8], [1.3], [2.1]], dtype=torch.float64), torch.ones(1).double()
    expected = {0.0: sum(share * share for share in p)}
    for i, j in itertools.combinations(range(4), 2):
        two = undirected([(0, 1)] if (i, j) in graph.pairs else [], 2)
        expected[round(dense(z[[i, j]], one, two, balanced=True), 6)] = 2 * p[i] * p[j]
    values = [
        subsampled_edge_log_likelihood(z, one, Adjacency(*graph), num_nodes=2).item()
        for _ in range(draws)
    ]
    seen = Counter(round(value, 6) for value in values)
    assert seen.keys() <= expected.keys()
    chi_square = sum((seen[v] - draws * e) ** 2 / (draws * e) for v, e in expected.items())
    assert chi_square < 22.5  # exceeded once in a thousand with 6 degrees of freedom


def test_subsample_of_a_batch_is_that_of_each_graph() -> None:
    torch.manual_seed(0)
    graphs = [random_graph(9), no_edges(4), complete(4), path(2), no_edges(1)]
    joined, activation = join(graphs), uniform(1, 3)
    z = uniform(0, joined.batch.numel(), 3)
    options: dict[str, Any] = {"num_nodes": 5000, "importance": 0.5}
    parts = zip(z.split([graph.num_nodes for graph in graphs]), graphs, strict=True)
    alone = [
        subsampled_edge_log_likelihood(part, activation, Adjacency(*graph), **options)
        for part, graph in parts
    ]
    edges = Adjacency(joined.edge_index, z.size(0))
    together = subsampled_edge_log_likelihood(z, activation, edges, joined.batch, 5, **options)
    torch.testing.assert_close(together, torch.cat(alone))


def test_subsample_of_a_batch_draws_from_every_graph() -> None:
    """A pair of nodes is drawn from each graph."""
    torch.manual_seed(0)
    joined = join([complete(5), complete(3)])
    z, one = torch.ones(8, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    edges, pair = Adjacency(joined.edge_index, 8), math.log(1 - math.exp(-1)) / 2
    seen = {
        tuple(
            round(value, 9)
            for value in subsampled_edge_log_likelihood(
                z, one, edges, joined.batch, 2, num_nodes=2
            ).tolist()
        )
        for _ in range(60)
    }
    # Two draws may be of one node, which has no pairs.
    assert seen == set(itertools.product((0.0, round(pair, 9)), repeat=2))


def test_one_end_has_the_gradient_of_both_also_in_stacked_runs() -> None:
    z = torch.rand(3, 2, dtype=torch.double)

    def slope(z: Tensor) -> Tensor:
        return torch.func.grad(lambda one: (_as_both_ends(one) * one.detach()).sum())(z)

    assert torch.equal(_as_both_ends(z), z)
    torch.testing.assert_close(slope(z), 2 * z)
    torch.testing.assert_close(torch.func.vmap(slope)(z[None]), 2 * z[None])


@pytest.mark.parametrize("balanced", [False, True])
def test_a_batch_of_all_nodes_has_the_whole_likelihood(balanced: bool) -> None:
    torch.manual_seed(0)
    z, mean = torch.rand(2, 7, 3, dtype=torch.float64)
    activation, edge_index = torch.rand(3, dtype=torch.float64), path(7).edge_index
    edges = Adjacency(edge_index, 7)
    found = partial_edge_log_likelihood(
        z,
        activation,
        edges,
        mean,
        edge_weight=torch.ones(edge_index.size(1), dtype=torch.float64),
        total=mean.sum(0),
        size=(7, edge_index.size(1) // 2),
        balanced=balanced,
    )
    whole = edge_log_likelihood(z, activation, edge_index, mean=mean, balanced=balanced)
    assert float(found) == pytest.approx(float(whole), abs=1e-12)


@pytest.mark.parametrize("importance", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("sizes", [[1, 2, 5], [3], [2, 2]])
@pytest.mark.parametrize("linked", [True, False])
def test_nodes_are_drawn_with_probabilities_that_sum_to_one(
    sizes: list[int], importance: float, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if 1 in sizes and importance == 0:
        pytest.skip("a lone node cannot be drawn")
    graphs = [path(size) if linked else no_edges(size) for size in sizes]
    p = asked_probabilities(monkeypatch, graphs, importance)
    expected = [importance if size == 1 else 1.0 for size in sizes]
    assert p.sum(1).tolist() == pytest.approx(expected)
