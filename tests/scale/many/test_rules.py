"""What runs for all replicas at once against a loop over the replicas, gradients included."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from strategies import Graph, directed_graphs, quick, seeds, sparse_of, uniform
from vepm.kernels.features import normalize_rows
from vepm.nn import Adjacency
from vepm.scale.many.edges import RunEdges, SharedFeatures

RUNS = 3


def check(stacked: Callable[..., Tensor], alone: list[Callable[..., Tensor]], *inputs: Any) -> None:
    """Values and gradients agree; an input is a stacked tensor, or one tensor for all."""
    dims = tuple(0 if isinstance(i, tuple) else None for i in inputs)
    ours = [torch.stack(i) if isinstance(i, tuple) else i.clone() for i in inputs]
    theirs = [i.clone() for i in ours]
    for tensor in (*ours, *theirs):
        tensor.requires_grad_()
    found = vmap(stacked, in_dims=dims)(*ours)
    own = [t.expand(RUNS, *t.shape) if d is None else t for t, d in zip(theirs, dims, strict=True)]
    expected = torch.stack([one(*parts) for one, *parts in zip(alone, *own, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weight = uniform(0, *expected.shape)
    gradients = torch.autograd.grad((found * weight).sum(), ours)
    exact = torch.autograd.grad((expected * weight).sum(), theirs)
    for ours_, exact_ in zip(gradients, exact, strict=True):
        torch.testing.assert_close(ours_, exact_, rtol=1e-12, atol=1e-12)


def many(seed: int, *shape: int) -> tuple[Tensor, ...]:
    return tuple(uniform(seed + r, *shape, low=-1) for r in range(RUNS))


def check_edges(
    stacked: Adjacency, alone: list[Adjacency], nodes: int, count: int, seed: int
) -> None:
    x, y, weight = many(seed, nodes, 2, 3), many(seed + 9, nodes, 2, 3), many(seed + 5, count, 2)
    for a, b in [(x, weight), (x, weight[0]), (x[0], weight)]:
        check(stacked.sum_neighbours, [one.sum_neighbours for one in alone], a, b)
    flat = [tuple(part[:, 0] for part in one) for one in (x, y)]
    groups = many(seed + 7, 3, 2)
    for a, b, c in [(*flat, groups), (flat[0][0], flat[1], groups), (*flat, groups[0])]:
        check(stacked.group_ends, [one.group_ends for one in alone], a, b, c)
    for a, b in [(x, y), (x[0], y)]:
        check(stacked.dot_ends, [one.dot_ends for one in alone], a, b)
    check(
        lambda s: stacked.sum_neighbours(s, None),
        [lambda s, o=o: o.sum_neighbours(s, None) for o in alone],
        x,
    )
    check(stacked.sum_at_target, [one.sum_at_target for one in alone], weight)


@given(directed_graphs(), seeds)
@quick
def test_replicas_of_one_graph(graph: Graph, seed: int) -> None:
    alone = [Adjacency(*graph)] * RUNS
    check_edges(RunEdges.shared(alone[0]), alone, graph.num_nodes, graph.edge_index.size(1), seed)


def test_what_is_the_same_for_all_stays_so() -> None:
    graph = RunEdges.shared(Adjacency(torch.tensor([[0, 1], [1, 0]]), 2))
    weight = torch.rand(2, 3)
    found = vmap(lambda _: graph.sum_at_target(weight))(torch.zeros(RUNS))
    assert torch.equal(found, weight.flip(0).expand(RUNS, -1, -1))


@given(st.lists(st.integers(0, 4), min_size=12 * RUNS, max_size=12 * RUNS), seeds)
@quick
def test_replicas_of_graphs_of_their_own(ends: list[int], seed: int) -> None:
    graphs = torch.tensor(ends).view(RUNS, 2, 6)
    alone = [Adjacency(graph, 5) for graph in graphs]
    shifts = 5 * torch.arange(RUNS)[:, None, None]
    union = Adjacency((graphs + shifts).transpose(0, 1).flatten(1), 5 * RUNS)
    own = RunEdges(graphs[0], 5, whole=union, axis=0, in_degree=alone[0].degree)
    check_edges(own, alone, 5, 6, seed)
    assert torch.equal(own.degree, alone[0].degree)


@given(seeds, st.booleans())
@quick
def test_sparse_features(seed: int, dropped: bool) -> None:
    dense = uniform(seed, 6, 4) * (uniform(seed + 1, 6, 4) < 0.4)
    sparse = sparse_of(dense)
    shared = SharedFeatures.of(sparse)
    assert isinstance(shared, SharedFeatures)
    count = sparse.values.numel()
    values = many(seed + 2, count) if dropped else sparse.values
    weights = many(seed + 3, 4, 2)

    def stacked(weight: Tensor, values: Tensor) -> Tensor:
        return shared.with_values(values.detach()) @ weight

    found = vmap(stacked, in_dims=(0, 0 if dropped else None))(
        torch.stack(weights), torch.stack(values) if isinstance(values, tuple) else values
    )
    for r, weight in enumerate(weights):
        own = values[r] if isinstance(values, tuple) else values
        torch.testing.assert_close(found[r], sparse.with_values(own) @ weight)
    ours = torch.stack(weights).requires_grad_()
    loss = vmap(lambda w: normalize_rows(shared, "l1") @ w)(ours).square().sum()
    theirs = torch.stack(weights).requires_grad_()
    exact = sum((normalize_rows(sparse, "l1") @ w).square().sum() for w in theirs)
    assert isinstance(exact, Tensor)
    (found,), (expected,) = torch.autograd.grad(loss, ours), torch.autograd.grad(exact, theirs)
    torch.testing.assert_close(found, expected)


def test_dense_features_pass_through() -> None:
    x = torch.rand(3, 2)
    assert SharedFeatures.of(x) is x


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton's interpreter is off")
def test_replicas_go_through_the_kernels_of_a_gpu() -> None:
    triton_pattern = pytest.importorskip("vepm.kernels.triton_pattern")

    class OnGPU(Adjacency):
        def pattern(self, heads: int, transposed: bool = False) -> Any:
            return triton_pattern.TritonPattern(self.sorted(transposed), longest=4)

    graph = (torch.tensor([[0, 1, 2, 3, 3, 4, 1], [1, 0, 1, 1, 2, 1, 4]]), 5)
    check_edges(RunEdges.shared(OnGPU(*graph)), [Adjacency(*graph)] * RUNS, 5, 7, seed=0)
