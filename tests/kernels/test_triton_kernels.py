"""The GPU's kernels, run by Triton's interpreter, against plain gathers and scatters."""

import os
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strategies import Graph, directed_graphs, no_edges, quick, seeds, uniform
from vepm.kernels.aggregation import _triton_pattern
from vepm.kernels.patterns import Pattern, SortedEdges
from vepm.kernels.shares import softmax_shares
from vepm.nn import Adjacency, aggregate, edge_dot

pytest.importorskip("triton", reason="Triton is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is off", allow_module_level=True)

from vepm.kernels.triton_pattern import TritonPattern

STAR = Graph(torch.tensor([[*range(1, 12), 0, 0], [0] * 11 + [1, 2]]), 12)
WIDE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 4e-2}


def both(graph: Graph, longest: int = 4) -> tuple[TritonPattern, Pattern]:
    sources, targets = graph.edge_index
    edges = SortedEdges(targets, sources, graph.num_nodes)
    gather = Pattern(targets, sources, graph.num_nodes)
    return TritonPattern(edges, longest=longest), gather


def with_kernels(graph: Graph, heads: int, longest: int = 4) -> Adjacency:
    edges = Adjacency(*graph)
    for transposed in False, True:
        pattern = TritonPattern(edges.sorted(transposed), longest=longest)
        edges._patterns[heads, transposed] = pattern
    return edges


def close(ours: Tensor, exact: Tensor, dtype: torch.dtype = torch.float64) -> None:
    assert ours.dtype == dtype
    tolerance = WIDE[dtype]
    torch.testing.assert_close(ours.double(), exact.double(), rtol=tolerance, atol=tolerance)


@given(directed_graphs(), st.integers(1, 5), st.integers(1, 5), st.sampled_from(list(WIDE)), seeds)
@quick
def test_kernels_equal_gather_and_scatter(
    graph: Graph, heads: int, width: int, dtype: torch.dtype, seed: int
) -> None:
    triton, gather = both(graph)
    x, y = (uniform(seed + i, graph.num_nodes, heads, width, low=-1).to(dtype) for i in range(2))
    weight = uniform(seed + 2, graph.edge_index.size(1), heads, low=-1).to(dtype)
    wide, wide_x, wide_y = weight.double(), x.double(), y.double()
    close(triton.sum_neighbours(weight, x), gather.sum_neighbours(wide, wide_x), dtype)
    close(triton.sum_neighbours(None, x), gather.sum_neighbours(None, wide_x), dtype)
    close(triton.sum_edges(weight), gather.sum_edges(wide), dtype)
    close(triton.dot_ends(x, y), gather.dot_ends(wide_x, wide_y), dtype)


@pytest.mark.parametrize(("heads", "width"), [(1, 1), (1, 130), (3, 70), (9, 40), (130, 1)])
def test_shapes_that_take_several_programs_or_padding(heads: int, width: int) -> None:
    triton, gather = both(STAR)
    x, y = uniform(0, 12, heads, width, low=-1), uniform(1, 12, heads, width, low=-1)
    weight = uniform(2, 13, heads)
    close(triton.sum_neighbours(weight, x), gather.sum_neighbours(weight, x))
    close(triton.dot_ends(x, y), gather.dot_ends(x, y))


@pytest.mark.parametrize("longest", [1, 3, 10, 11, 100])
def test_long_rows_are_cut_without_losing_an_edge(longest: int) -> None:
    triton, gather = both(STAR, longest)
    assert (triton.pieces is None) == (longest >= 11)
    x, weight = uniform(0, 12, 2, 3), uniform(1, 13, 2)
    close(triton.sum_neighbours(weight, x), gather.sum_neighbours(weight, x))
    close(triton.sum_edges(weight), gather.sum_edges(weight))
    close(triton.dot_ends(x, x), gather.dot_ends(x, x))


@pytest.mark.parametrize("graph", [no_edges(0), no_edges(3)], ids=["nothing", "no edges"])
def test_graphs_without_edges(graph: Graph) -> None:
    triton, _ = both(graph)
    x = uniform(0, graph.num_nodes, 2, 3)
    assert triton.sum_neighbours(torch.empty(0, 2).double(), x).equal(torch.zeros_like(x))
    assert triton.dot_ends(x, x).shape == (0, 2)


@given(directed_graphs(), st.integers(1, 3), seeds)
@quick
def test_gradients_through_the_kernels(graph: Graph, heads: int, seed: int) -> None:
    edges, plain = with_kernels(graph, heads), Adjacency(*graph)
    x, y = (uniform(seed + i, graph.num_nodes, heads, 2, low=-1) for i in range(2))
    weight = uniform(seed + 2, graph.edge_index.size(1), heads)
    leaves = [t.requires_grad_() for t in (x, y, weight)]

    def loss(edges: Adjacency) -> Tensor:
        shares = softmax_shares(edge_dot(x, y, edges), 1 / 0.7)
        summed = aggregate(x, edges, weight * shares)
        return summed.square().sum() + edge_dot(x, y, edges).square().sum()

    for ours, theirs in zip(
        torch.autograd.grad(loss(edges), leaves),
        torch.autograd.grad(loss(plain), leaves),
        strict=True,
    ):
        close(ours, theirs)


def test_without_triton_there_is_no_such_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _triton_pattern.__wrapped__() is TritonPattern
    monkeypatch.setitem(sys.modules, "vepm.kernels.triton_pattern", None)
    assert _triton_pattern.__wrapped__() is None
