"""Edges shared out and summed in one pass, run by Triton's interpreter, against doing it in two."""

import os
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strategies import Graph, directed_graphs, no_edges, quick, seeds, uniform
from vepm.kernels.shares import Shares
from vepm.nn import VEPM, Adjacency, EdgePartitioner, aggregate
from vepm.nn.bank import CommunityBank
from vepm.nn.convolution import NORMALIZATIONS
from vepm.scale.batches import GraphBatch
from vepm.scale.many.edges import SharedEdges
from vepm.training.config import TrainingConfig
from vepm.training.losses import bound_loss

pytest.importorskip("triton", reason="Triton is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is off", allow_module_level=True)

from vepm.kernels import triton_pattern
from vepm.kernels.triton_pattern import TritonPattern

# A hub, a repeat, a loop; node 7 is isolated.
HUB = Graph(torch.tensor([[1, 2, 3, 4, 5, 6, 0, 3, 3, 2], [0, 0, 0, 0, 0, 0, 1, 1, 1, 2]]), 8)


def with_kernels(graph: Graph, longest: int = 4) -> Adjacency:
    """Edges that run on the GPU's kernels, whatever the number of communities."""
    edges = Adjacency(*graph)

    class Patterns(dict[Any, Any]):
        def __contains__(self, key: object) -> bool:
            return True

        def __missing__(self, key: tuple[int, bool]) -> TritonPattern:
            return TritonPattern(edges.sorted(key[1]), longest=longest)

    object.__setattr__(edges, "_patterns", Patterns())
    return edges


def ends(graph: Graph, heads: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    shape = (graph.num_nodes, heads, width)
    return uniform(seed, *shape, low=-2), uniform(seed + 1, *shape, low=-2)


def same(ours: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(ours, exact, rtol=1e-11, atol=1e-11)


@given(
    directed_graphs(),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([None, 0.5, 1.0, 2.0]),
    seeds,
)
@quick
def test_one_pass_equals_two(
    graph: Graph, heads: int, segment: int, width: int, exponent: float | None, seed: int
) -> None:
    x = uniform(seed + 2, graph.num_nodes, heads, width, low=-1)
    own = ends(graph, heads, segment, seed)
    if exponent is not None:
        # Rates are positive where shares are proportional to them.
        own = (own[0].abs() + 0.1, own[1].abs() + 0.1)
    leaves = [t.detach().requires_grad_() for t in (x, *own)]
    direction = uniform(seed + 3, graph.num_nodes, heads, width, low=-1)
    outputs = []
    for edges in with_kernels(graph), Adjacency(*graph):
        shares = Shares(leaves[1], leaves[2], edges, exponent)
        fused = isinstance(edges.pattern(heads), TritonPattern)
        out = shares.aggregate(leaves[0]) if fused else aggregate(leaves[0], edges, shares.tensor())
        outputs.append([out, *torch.autograd.grad(out, leaves, direction)])
    for ours, theirs in zip(*outputs, strict=True):
        same(ours, theirs)


@given(directed_graphs(), st.integers(1, 4), st.integers(1, 3), seeds)
@quick
def test_sums_of_shares(graph: Graph, heads: int, segment: int, seed: int) -> None:
    leaves = [t.requires_grad_() for t in ends(graph, heads, segment, seed)]
    plain = Adjacency(*graph)
    ours = Shares(leaves[0], leaves[1], with_kernels(graph)).sum_at_target()
    theirs = plain.sum_at_target(Shares(leaves[0], leaves[1], plain).tensor())
    same(ours, theirs)
    direction = uniform(seed + 3, graph.num_nodes, heads, low=-1)
    for our, their in zip(
        torch.autograd.grad(ours, leaves, direction),
        torch.autograd.grad(theirs, leaves, direction),
        strict=True,
    ):
        same(our, their)


@pytest.mark.parametrize("longest", [1, 3, 5, 100])
@pytest.mark.parametrize(("heads", "segment", "width"), [(1, 1, 1), (3, 5, 2), (9, 2, 7)])
def test_long_rows_are_cut(longest: int, heads: int, segment: int, width: int) -> None:
    edges, plain = with_kernels(HUB, longest), Adjacency(*HUB)
    inputs = [uniform(2, 8, heads, width), *ends(HUB, heads, segment)]
    x, target, source = leaves = [t.requires_grad_() for t in inputs]
    ours = Shares(target, source, edges).aggregate(x)
    theirs = aggregate(x, plain, Shares(target, source, plain).tensor())
    same(ours, theirs)
    for our, their in zip(
        torch.autograd.grad(ours.square().sum(), leaves),
        torch.autograd.grad(theirs.square().sum(), leaves),
        strict=True,
    ):
        same(our, their)


@pytest.mark.parametrize("graph", [no_edges(0), no_edges(3)], ids=["nothing", "no edges"])
def test_graphs_without_edges(graph: Graph) -> None:
    leaves = [t.requires_grad_() for t in (*ends(graph, 2, 3), uniform(2, graph.num_nodes, 2, 1))]
    shares = Shares(leaves[0], leaves[1], with_kernels(graph))
    out = shares.aggregate(leaves[2])
    assert out.equal(torch.zeros_like(out))
    for gradient in torch.autograd.grad(out.sum(), leaves):
        assert gradient.equal(torch.zeros_like(gradient))
    assert shares.sum_at_target().equal(torch.zeros(graph.num_nodes, 2).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_numbers(dtype: torch.dtype) -> None:
    x, target, source = uniform(2, 8, 3, 4), *ends(HUB, 3, 2)
    plain = Adjacency(*HUB)
    narrow = [t.to(dtype) for t in (x, target, source)]
    wide = [t.double() for t in narrow]
    ours = Shares(narrow[1], narrow[2], with_kernels(HUB)).aggregate(narrow[0])
    theirs = aggregate(wide[0], plain, Shares(wide[1], wide[2], plain).tensor())
    assert ours.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance)


def test_nothing_of_the_size_of_the_edges_is_kept() -> None:
    edges = with_kernels(HUB)
    leaves = [t.requires_grad_() for t in (uniform(0, 8, 2, 3), *ends(HUB, 2, 2))]
    saved: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        Shares(leaves[1], leaves[2], edges).aggregate(leaves[0])
    assert {id(t) for t in saved} <= {id(t) for t in leaves}
    assert len(saved) == 3


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize(("communities", "layers"), [(4, 1), (5, 2), (40, 2)])
def test_the_bank_reads_plans_as_it_reads_shares(
    normalize: str, communities: int, layers: int
) -> None:
    bank = CommunityBank(3, 8, 4, num_layers=layers, normalize=normalize).double()
    x, z = uniform(0, 8, 3), uniform(1, 8, communities, high=2).requires_grad_()
    activation = uniform(2, communities)
    partitioner = EdgePartitioner(4, temperature=0.7)
    found = []
    for edges in with_kernels(HUB), Adjacency(*HUB):
        out = bank(x, edges, partitioner.plan(z, activation, edges))[-1]
        found.append([out, *torch.autograd.grad(out.square().sum(), [z, *bank.parameters()])])
    for ours, theirs in zip(*found, strict=True):
        same(ours, theirs)


def test_what_is_fused_and_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = with_kernels(HUB)
    few, many = (Shares(*ends(HUB, 4, segment), edges) for segment in (2, 16))
    assert few.worth_fusing(sums=2, channels=2)
    assert many.worth_fusing(sums=1, channels=2)
    assert not many.worth_fusing(sums=2, channels=2)
    assert not Shares(*ends(HUB, 4, 2), Adjacency(*HUB)).worth_fusing(sums=1, channels=2)
    shared = SharedEdges(*HUB, _patterns=edges._patterns)
    assert not Shares(*ends(HUB, 4, 2), shared).worth_fusing(sums=1, channels=2)
    monkeypatch.setattr(triton_pattern, "MOST_FUSED", 7)
    assert not few.worth_fusing(sums=1, channels=2)


def test_the_bound_is_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = VEPM(3, 2, num_communities=6, num_metacommunities=4, hidden_channels=8, dropout=0.0)
    model = model.double()
    x, y, rows = uniform(0, 8, 3), torch.arange(8) % 2, torch.arange(8)
    undirected = torch.tensor([[0, 1, 1, 2, 5, 6], [1, 0, 2, 1, 6, 5]])
    config, calls, found = TrainingConfig(sampling=False), [], []
    share_sums = TritonPattern.share_sums

    def note(self: TritonPattern, *arguments: Any, **options: Any) -> list[Tensor | None]:
        calls.append(1)
        return share_sums(self, *arguments, **options)

    monkeypatch.setattr(TritonPattern, "share_sums", note)
    for edges in Adjacency(undirected, 8), with_kernels(Graph(undirected, 8)):
        loss = bound_loss(model, GraphBatch(x, edges, y), rows, config).loss
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
        assert len(calls) == (0 if len(found) == 1 else 6)
    for ours, theirs in zip(*found, strict=True):
        same(ours, theirs)
