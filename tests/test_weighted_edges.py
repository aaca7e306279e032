"""Weights on edges: their likelihood by double loops, and what message passing makes of them."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from strategies import (
    Graph,
    complete,
    dense_propagation,
    join,
    no_edges,
    path,
    quick,
    random_graph,
    seeds,
    shares,
    uniform,
)
from vepm import VEPM
from vepm.errors import InputError
from vepm.nn import Adjacency
from vepm.nn.composer import Relevance
from vepm.nn.convolution import NORMALIZATIONS, plain_propagation, propagation
from vepm.objective import edge_log_likelihood, subsampled_edge_log_likelihood
from vepm.scale.batches import GraphStore, single_graph
from vepm.scale.large import LargeGraph

GRAPH = random_graph(9)


def weights(graph: Graph, whole: bool = True, seed: int = 0) -> Tensor:
    """A weight for each edge, the same in both directions."""
    half = uniform(seed, graph.edge_index.size(1) // 2, low=0.2, high=9.0)
    return (half.ceil() if whole else half).repeat(2)


def dense(
    z: Tensor,
    activation: Tensor,
    graph: Graph,
    weight: Tensor,
    balanced: bool = False,
    mean: Tensor | None = None,
) -> float:
    """Double loop over i < j; the rate of an edge is that of the means, but in its logarithm."""
    matrix = activation if activation.dim() == 2 else torch.diag(activation)
    mean = z if mean is None else mean
    table = dict(zip(map(tuple, graph.edge_index.t().tolist()), weight.tolist(), strict=True))
    on, off = [], []
    for i, j in itertools.combinations(range(graph.num_nodes), 2):
        rate, expected = (float(a[i] @ matrix @ a[j]) for a in (z, mean))
        if (i, j) in table:
            w = table[i, j]
            on.append(w * math.log(rate) - expected - math.lgamma(w + 1))
        else:
            off.append(-expected)
    if balanced:
        return (math.fsum(on) / max(len(on), 1) + math.fsum(off) / max(len(off), 1)) / 2
    return math.fsum(on) + math.fsum(off)


def close(value: Tensor, expected: list[float]) -> bool:
    return value.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.booleans(), st.booleans(), st.booleans(), st.booleans(), seeds)
@quick
def test_likelihood_of_weights_equals_double_loop(
    matrix: bool, whole: bool, balanced: bool, analytic: bool, seed: int
) -> None:
    graphs = [random_graph(7, seed=seed % 97), complete(4), no_edges(3), no_edges(0), path(2)]
    batch, sizes = join(graphs), [g.num_nodes for g in graphs]
    each = [weights(g, whole, seed + i) for i, g in enumerate(graphs)]
    z, mean = uniform(seed, sum(sizes), 3), uniform(seed + 1, sum(sizes), 3)
    activation = uniform(seed, 3)
    if matrix:
        activation = uniform(seed, 3, 3)
        activation = activation + activation.T
    value = edge_log_likelihood(
        z,
        activation,
        batch.edge_index,
        batch.batch,
        balanced=balanced,
        mean=mean if analytic else None,
        num_graphs=len(graphs),
        edge_weight=torch.cat(each),
    )
    parts = zip(graphs, z.split(sizes), mean.split(sizes), each, strict=True)
    expected = [
        dense(a, activation, g, w, balanced, m if analytic else None) for g, a, m, w in parts
    ]
    assert close(value, expected)


@pytest.mark.parametrize("balanced", [False, True])
def test_gradients_of_the_likelihood_of_weights_match_finite_differences(balanced: bool) -> None:
    batch = join([random_graph(5), complete(3), no_edges(2)])
    weight = torch.cat([weights(g) for g in batch.graphs])

    def value(z: Tensor, activation: Tensor, mean: Tensor) -> Tensor:
        return edge_log_likelihood(
            z,
            activation,
            batch.edge_index,
            batch.batch,
            balanced=balanced,
            mean=mean,
            edge_weight=weight,
        )

    inputs = [uniform(0, 10, 3), uniform(1, 3), uniform(2, 10, 3)]
    assert torch.autograd.gradcheck(value, [t.requires_grad_() for t in inputs])


def test_weights_of_repeated_edges_add_up_and_loops_have_none() -> None:
    z, activation, once = uniform(0, 3, 2), uniform(1, 2), path(3)
    twice = torch.cat([once.edge_index, once.edge_index, torch.tensor([[1], [1]])], dim=1)
    weight = weights(once)
    value = edge_log_likelihood(
        z, activation, twice, edge_weight=torch.cat([weight, 2 * weight, torch.ones(1).double()])
    )
    assert close(value, [dense(z, activation, once, 3 * weight)])


def test_subsample_of_all_nodes_keeps_the_weights() -> None:
    torch.manual_seed(0)
    z, activation, weight = uniform(0, 9, 3), uniform(1, 3), weights(GRAPH)
    value = subsampled_edge_log_likelihood(
        z, activation, Adjacency(*GRAPH, weight=weight), num_nodes=2000
    )
    assert close(value, [dense(z, activation, GRAPH, weight, balanced=True)])


def relative(graph: Graph, weight: Tensor) -> Tensor:
    """Weights over the geometric mean of the mean weights at both ends, one edge at a time."""
    pairs = graph.edge_index.t().tolist()
    into = [[float(w) for (_, t), w in zip(pairs, weight, strict=True) if t == i] for i in range(9)]
    mean = [sum(own) / max(len(own), 1) for own in into]
    found = [
        float(w) / math.sqrt(mean[i] * mean[j]) for (i, j), w in zip(pairs, weight, strict=True)
    ]
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_message_passing_shares_the_weights_out(normalize: str) -> None:
    weight, split, x = weights(GRAPH, whole=False), shares(GRAPH, 3), uniform(1, 9, 3, 2)
    edges, rho = Adjacency(*GRAPH, weight=weight), relative(GRAPH, weight)
    ours = propagation(edges, split, normalize).spread(x, edges)
    for k in range(3):
        matrix = dense_propagation(GRAPH, split[:, k], normalize, rho)
        torch.testing.assert_close(ours[:, k], matrix @ x[:, k])


def test_plain_message_passing_and_relevance_use_the_weights() -> None:
    weight, x = weights(GRAPH), uniform(1, 9, 1, 2)
    edges, rho = Adjacency(*GRAPH, weight=weight), relative(GRAPH, weight)
    one = torch.ones_like(rho)
    for conv, normalize in (("gcn", "graph"), ("gin", "none")):
        ours = plain_propagation(edges, x, conv).spread(x, edges)
        matrix = dense_propagation(GRAPH, one, normalize, rho)
        torch.testing.assert_close(ours[:, 0], matrix @ x[:, 0])
    split = shares(GRAPH, 2)
    model = VEPM(2, 2, num_communities=2, num_metacommunities=2, composer="weighted").double()
    found = model.composer.propagations(edges, x[:, 0], split)[0]  # type: ignore[operator]
    by_hand = Relevance(2).double()(Adjacency(*GRAPH), split * rho[:, None])
    torch.testing.assert_close(found.edge, by_hand.edge)


@pytest.mark.parametrize("conv", ["gcn", "gin"])
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_equal_weights_are_no_weights_and_their_unit_does_not_matter(
    conv: str, normalize: str
) -> None:
    torch.manual_seed(0)
    model = VEPM(
        4, 2, num_communities=4, num_metacommunities=2, conv=conv, normalize=normalize
    ).double()
    x, weight = uniform(0, 9, 4), weights(GRAPH, whole=False)
    plain = model.eval()(x, GRAPH.edge_index).logits
    equal = model(x, Adjacency(*GRAPH, weight=torch.full_like(weight, 7.0))).logits
    torch.testing.assert_close(equal, plain)
    one, other = (
        model(x, Adjacency(*GRAPH, weight=factor * weight)).logits for factor in (1, 1000)
    )
    torch.testing.assert_close(one, other)
    assert (one - plain).abs().max() > 1e-6


def data(graph: Graph, weight: Tensor | None) -> Data:
    found = Data(x=uniform(0, graph.num_nodes, 2), edge_index=graph.edge_index, y=torch.tensor([0]))
    if weight is not None:
        found.edge_weight = weight
    return found


def test_weights_travel_with_their_graphs() -> None:
    graphs = [random_graph(5), path(3), complete(4)]
    each = [weights(g, seed=i) for i, g in enumerate(graphs)]
    store = GraphStore([data(g, w) for g, w in zip(graphs, each, strict=True)])
    batch = store.select(torch.tensor([2, 0]))
    assert batch.edges.weight is not None
    assert batch.edges.weight.equal(torch.cat([each[2], each[0]]))
    moved = batch.edges.to("cpu").weight
    assert moved is not None
    assert moved.equal(batch.edges.weight)


def test_counts_are_kept_and_other_weights_are_relative_to_their_mean() -> None:
    for whole in (True, False):
        weight = weights(GRAPH, whole)
        found = single_graph(data(GRAPH, weight)).edges.weight
        assert found is not None
        torch.testing.assert_close(found, weight if whole else weight / weight.mean())


def test_logarithms_are_taken_of_weights_with_a_heavy_tail() -> None:
    half = torch.ones(GRAPH.edge_index.size(1) // 2, dtype=torch.float64)
    half[0], half[1] = 1000, 3
    for unit in (1, 7.5):
        found = single_graph(data(GRAPH, unit * half.repeat(2))).edges.weight
        expected = torch.log2(1 + half).repeat(2)
        assert found is not None
        torch.testing.assert_close(found, expected / expected.mean())


def test_what_cannot_take_weights_refuses_them() -> None:
    weighted = data(GRAPH, weights(GRAPH))
    with pytest.raises(InputError, match="some graphs have weights"):
        GraphStore([weighted, data(GRAPH, None)])
    with pytest.raises(InputError, match="trained at once"):
        LargeGraph(weighted)
