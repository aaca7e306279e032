"""Products of edge ends gathered by an assignment, against a double loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strategies import Graph, directed_graphs, no_edges, quick, random_graph, seeds, uniform
from vepm.kernels import aggregation
from vepm.kernels.aggregation import Adjacency
from vepm.kernels.shares import posterior_shares


def inputs(graph: Graph, communities: int, groups: int, seed: int = 0) -> list[torch.Tensor]:
    shapes = [(graph.num_nodes, communities)] * 2 + [(communities, groups)]
    return [uniform(seed + i, *shape, low=-1).requires_grad_() for i, shape in enumerate(shapes)]


@given(directed_graphs(), st.integers(1, 6), st.integers(1, 4), st.sampled_from([1, 2**22]), seeds)
@quick
def test_equals_a_double_loop(
    graph: Graph, communities: int, groups: int, block: int, seed: int
) -> None:
    target, source, assignment = inputs(graph, communities, groups, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregation, "GROUPED_NUMBERS", block)
        ours = Adjacency(*graph).group_ends(target, source, assignment)
    ends = target[graph.edge_index[1]] * source[graph.edge_index[0]]
    torch.testing.assert_close(ours, ends @ assignment, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("block", [1, 2**22])
def test_gradients_by_finite_differences(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(aggregation, "GROUPED_NUMBERS", block)
    graph = random_graph(6)

    def products(near: torch.Tensor, far: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        return Adjacency(*graph).group_ends(near, far, groups)

    assert torch.autograd.gradcheck(products, inputs(graph, 5, 2))


def test_no_edges() -> None:
    graph = no_edges(3)
    target, source, assignment = inputs(graph, 4, 2)
    out = Adjacency(*graph).group_ends(target, source, assignment)
    assert out.shape == (0, 2)
    grads = torch.autograd.grad(out.sum(), (target, source, assignment))
    assert all(not grad.any() for grad in grads)


def test_posterior_shares_by_hand() -> None:
    rates = torch.tensor([[1.0, 3.0], [2.0, 2.0], [0.0, 0.0], [0.0, 5.0]])
    expected = torch.tensor([[0.1, 0.9], [0.5, 0.5], [0.5, 0.5], [0.0, 1.0]])
    torch.testing.assert_close(posterior_shares(rates, 2.0), expected)


def test_posterior_shares_do_not_depend_on_the_scale_of_the_rates() -> None:
    rates = torch.rand(5, 3, dtype=torch.float64) + 0.1
    torch.testing.assert_close(posterior_shares(rates, 1.5), posterior_shares(1e-9 * rates, 1.5))


@pytest.mark.parametrize(("numbers", "sizes"), [(4, [4, 2]), (100, [6]), (1, [2, 2, 2])])
def test_communities_are_taken_as_many_at_a_time_as_memory_allows(
    numbers: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(9)
    edges = graph.edge_index.size(1)
    monkeypatch.setattr(aggregation, "GROUPED_NUMBERS", numbers * edges + 1)
    target, source, assignment = inputs(graph, 6, 2)
    found = aggregation._blocks(Adjacency(*graph), target, source, assignment[None])
    assert [tuple(near.shape) for near, _, _ in found] == [(1, edges, size) for size in sizes]
