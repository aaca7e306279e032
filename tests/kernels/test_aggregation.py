"""The one kernel and its adjoint against plain gathers and scatters."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strategies import Graph, LargestTensor, directed_graphs, no_edges, quick, seeds, uniform
from vepm.kernels.patterns import BlockPattern, Pattern, SortedEdges, index_type
from vepm.nn import VEPM, Adjacency, aggregate, edge_dot
from vepm.objective import edge_log_likelihood

# Repeats, a loop, unsorted one-way edges; node 4 is isolated.
MESSY = Graph(torch.tensor([[3, 0, 0, 2, 1, 0, 3], [1, 1, 1, 2, 0, 3, 2]]), 5)


def gather_scatter(x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for e, (source, target) in enumerate(edge_index.t().tolist()):
        out[target] += edge_weight[e, :, None] * x[source]
    return out


def test_aggregate_of_a_hand_computed_graph() -> None:
    # 0 -> 1 and 2 -> 1 and 1 -> 0, two communities, one channel.
    edge_index = torch.tensor([[0, 2, 1], [1, 1, 0]])
    edge_weight = torch.tensor([[0.5, 1.0], [0.25, 0.0], [2.0, 3.0]])
    x = torch.tensor([[[1.0], [10.0]], [[2.0], [20.0]], [[4.0], [40.0]]])
    expected = torch.tensor([[[4.0], [60.0]], [[1.5], [10.0]], [[0.0], [0.0]]])
    assert aggregate(x, edge_index, edge_weight).equal(expected)


def test_edge_dot_of_a_hand_computed_graph() -> None:
    edge_index = torch.tensor([[0, 1], [1, 1]])
    target = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])
    source = torch.tensor([[[5.0, 6.0]], [[7.0, 8.0]]])
    expected = torch.tensor([[3.0 * 5 + 4 * 6], [3.0 * 7 + 4 * 8]])
    assert edge_dot(target, source, edge_index).equal(expected)


def test_links_are_those_of_their_own_direction() -> None:
    """One link from 0 to 1 of weight 2, and links both ways between 1 and 2, of 3 and 4."""
    ends = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    arcs = torch.tensor([[2.0, 0.0], [0.0, 2.0], [3.0, 4.0], [4.0, 3.0]])
    links = Adjacency(ends, 3, weight=arcs.sum(1), arcs=arcs).links
    assert links.edge_index.tolist() == [[0, 1, 2], [1, 2, 1]]
    assert links.weight is not None
    assert links.weight.tolist() == [2, 3, 4]
    assert Adjacency(ends, 3, arcs=arcs).links.weight is None


def test_messages_flow_from_the_first_row_to_the_second() -> None:
    out = aggregate(torch.ones(3, 1, 1), torch.tensor([[0], [2]]), torch.ones(1, 1))
    assert out.flatten().tolist() == [0, 0, 1]


@given(directed_graphs(), st.integers(1, 5), st.integers(1, 3), seeds)
@quick
def test_aggregate_equals_gather_scatter(graph: Graph, heads: int, width: int, seed: int) -> None:
    x = uniform(seed, graph.num_nodes, heads, width, low=-1)
    weight = uniform(seed + 1, graph.edge_index.size(1), heads, low=-1)
    expected = gather_scatter(x, graph.edge_index, weight)
    torch.testing.assert_close(aggregate(x, graph.edge_index, weight), expected)
    torch.testing.assert_close(aggregate(x, Adjacency(*graph), weight), expected)


@given(directed_graphs(), st.integers(1, 5), st.integers(1, 3), seeds)
@quick
def test_edge_dot_equals_gathered_products(graph: Graph, heads: int, width: int, seed: int) -> None:
    target = uniform(seed, graph.num_nodes, heads, width, low=-1)
    source = uniform(seed + 1, graph.num_nodes, heads, width, low=-1)
    expected = (target[graph.edge_index[1]] * source[graph.edge_index[0]]).sum(-1)
    torch.testing.assert_close(edge_dot(target, source, graph.edge_index), expected)
    torch.testing.assert_close(edge_dot(target, source, Adjacency(*graph)), expected)


@given(directed_graphs(), st.integers(1, 4), seeds)
@quick
def test_gradients_equal_those_of_gather_scatter(graph: Graph, heads: int, seed: int) -> None:
    x = uniform(seed, graph.num_nodes, heads, 2).requires_grad_()
    weight = uniform(seed + 1, graph.edge_index.size(1), heads).requires_grad_()
    direction = uniform(seed + 2, graph.num_nodes, heads, 2, low=-1)
    ours = torch.autograd.grad(aggregate(x, graph.edge_index, weight), [x, weight], direction)
    messages = weight[..., None] * x[graph.edge_index[0]]
    plain = torch.zeros_like(x).index_add(0, graph.edge_index[1], messages)
    theirs = torch.autograd.grad(plain, [x, weight], direction)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("graph", [MESSY, no_edges(3)], ids=["messy", "no edges"])
def test_gradients_match_finite_differences(graph: Graph, heads: int) -> None:
    edges = Adjacency(*graph)
    x = uniform(0, graph.num_nodes, heads, 2).requires_grad_()
    other = uniform(1, graph.num_nodes, heads, 2).requires_grad_()
    weight = uniform(2, graph.edge_index.size(1), heads).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, w: aggregate(x, edges, w), (x, weight), fast_mode=heads > 1
    )
    assert torch.autograd.gradcheck(
        lambda a, b: edge_dot(a, b, edges), (x, other), fast_mode=heads > 1
    )


def test_gradients_flow_only_where_asked() -> None:
    x, weight = uniform(0, 5, 2, 3), uniform(1, 7, 2)
    for wanted in x.clone().requires_grad_(), weight.clone().requires_grad_():
        inputs = (wanted, weight) if wanted.dim() == 3 else (x, wanted)
        out = aggregate(inputs[0], MESSY.edge_index, inputs[1])
        (grad,) = torch.autograd.grad(out.sum(), [wanted])
        assert grad.shape == wanted.shape


def test_inputs_need_not_be_contiguous() -> None:
    x, weight = uniform(0, 3, 5, 2).transpose(0, 1), uniform(1, 3, 7).t()
    out = aggregate(x, MESSY.edge_index, weight)
    assert not x.is_contiguous()
    torch.testing.assert_close(out, gather_scatter(x, MESSY.edge_index, weight))


def test_no_message_of_edges_times_width_is_kept_or_made() -> None:
    nodes, num_edges, heads, width = 100, 3000, 4, 16
    generator = torch.Generator().manual_seed(0)
    edges = Adjacency(torch.randint(nodes, (2, num_edges), generator=generator), nodes)
    x = uniform(0, nodes, heads, width).requires_grad_()
    weight = uniform(1, num_edges, heads).requires_grad_()
    saved: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    def unchanged(tensor: Any) -> Any:
        return tensor

    with LargestTensor() as largest, torch.autograd.graph.saved_tensors_hooks(note, unchanged):
        aggregate(x, edges, weight).sum().backward()
    assert x.grad is not None
    assert weight.grad is not None
    assert 0 < sum(saved) <= x.numel() + weight.numel()
    assert 0 < largest.size <= max(x.numel(), weight.numel())


@given(directed_graphs(), st.integers(1, 5), seeds)
@quick
def test_both_ways_to_sum_agree(graph: Graph, heads: int, seed: int) -> None:
    sources, targets = graph.edge_index
    block = BlockPattern(SortedEdges(targets, sources, graph.num_nodes), heads)
    gather = Pattern(targets, sources, graph.num_nodes)
    x, other = (uniform(seed + i, graph.num_nodes, heads, 3) for i in range(2))
    weight = uniform(seed + 2, graph.edge_index.size(1), heads)
    torch.testing.assert_close(gather.sum_neighbours(weight, x), block.sum_neighbours(weight, x))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vepm.kernels.patterns.STRIP", 3)
        torch.testing.assert_close(gather.dot_ends(x, other), block.dot_ends(x, other))
    torch.testing.assert_close(gather.sum_neighbours(None, x), block.sum_neighbours(None, x))


def test_adjacency_derives_its_pattern_once_per_number_of_communities() -> None:
    edges = Adjacency(*MESSY)
    assert edges.pattern(2) is edges.pattern(2)
    assert edges.pattern(2) is not edges.pattern(2, transposed=True)
    assert edges.pattern(2) is not edges.pattern(3)


def test_adjacency_moves_between_devices() -> None:
    moved = Adjacency(*MESSY).to("meta")
    assert moved.edge_index.device.type == "meta"
    assert moved.num_nodes == 5


@pytest.mark.parametrize("node", [-1, 5])
def test_unknown_nodes_are_refused(node: int) -> None:
    edge_index = torch.tensor([[0, node], [1, 1]])
    with pytest.raises(ValueError, match=f"{node}.*numbered 0 to 4"):
        aggregate(torch.ones(5, 1, 1), edge_index, torch.ones(2, 1))
    with pytest.raises(ValueError, match="numbered 0 to 4"):
        edge_dot(torch.ones(5, 1, 1), torch.ones(5, 1, 1), edge_index)


@pytest.mark.parametrize("wrong", [MESSY.edge_index.t(), MESSY.edge_index[0], torch.ones(2, 7)])
def test_edges_of_another_shape_or_type_are_refused(wrong: Tensor) -> None:
    for use in (
        lambda: aggregate(torch.ones(5, 1, 1), wrong, None),
        lambda: edge_log_likelihood(torch.ones(5, 1), torch.ones(1), wrong),
        lambda: VEPM(3, 2)(torch.ones(5, 3), wrong),
    ):
        with pytest.raises(ValueError, match=r"edge_index must be \[2, E\] and of integers"):
            use()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_sums_in_single(kind: torch.dtype) -> None:
    edges, values = Adjacency(*MESSY), torch.ones(7, 2)
    found = edges.sum_at_target(values.to(kind))
    assert found.dtype == kind
    assert found.float().equal(edges.sum_at_target(values))


@pytest.mark.parametrize("shape", [(7, 3), (7, 1), (6, 2), (7,)])
def test_weights_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"edge_weight must have .* \(7, 2\), got"):
        aggregate(torch.ones(5, 2, 1), MESSY.edge_index, torch.ones(shape))


def test_weights_of_messages_by_hand() -> None:
    # A path whose first edge has weight 2 and whose second has weight 6.
    edge_index, weight = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([2.0, 2, 6, 6])
    edges = Adjacency(edge_index, 4, weight=weight)
    # The mean weights of the edges of the nodes are 2, 4 and 6.
    expected = torch.tensor([2 / 8**0.5, 2 / 8**0.5, 6 / 24**0.5, 6 / 24**0.5])[:, None]
    assert edges.message_weight is not None
    torch.testing.assert_close(edges.message_weight, expected)
    light, heavy = expected[0, 0], expected[2, 0]
    degree = 1 + torch.tensor([light, light + heavy, heavy, 0])
    own, loops = edges.gcn_weights(torch.float32)
    ends = degree[edge_index].prod(0).rsqrt()[:, None]
    torch.testing.assert_close(own, ends * expected)
    torch.testing.assert_close(loops, 1 / degree[:, None])
    plain = Adjacency(edge_index, 4)
    assert plain.message_weight is None
    ends = torch.full((4, 1), 6.0**-0.5, dtype=torch.double)
    torch.testing.assert_close(plain.gcn_weights(torch.float64)[0], ends)


def test_links_of_a_directed_graph_have_their_own_direction_alone() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    arcs = torch.tensor([[3.0, 0.0], [0.0, 3.0], [1.0, 4.0], [4.0, 1.0]])
    edges = Adjacency(edge_index, 3, weight=arcs.sum(1), arcs=arcs)
    assert edges.links.edge_index.tolist() == [[0, 1, 2], [1, 2, 1]]
    assert edges.links.weight is not None
    assert edges.links.weight.tolist() == [3.0, 1.0, 4.0]
    bare = Adjacency(edge_index, 3, arcs=arcs)
    assert bare.links.weight is None
    plain = Adjacency(edge_index, 3)
    assert plain.links is plain


def test_indices_have_32_bits_while_those_are_enough() -> None:
    assert {index_type(count) for count in (0, 1, 2**31 - 1)} == {torch.int32}
    assert index_type(2**31) == torch.int64
