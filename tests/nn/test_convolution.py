"""Convolutions over K communities at once; with one community they are PyG's."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from strategies import dense_propagation, path, random_graph, scramble, shares, uniform
from vepm.nn import Adjacency, GCNConv, GINConv
from vepm.nn.convolution import (
    NORMALIZATIONS,
    CommunityLinear,
    CommunityNorm,
    convolution,
    plain_propagation,
    propagation,
)

GRAPH = random_graph(9)
Layer = Callable[..., GCNConv | GINConv]


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_propagation_equals_dense_matrices(normalize: str) -> None:
    edges, weight, x = Adjacency(*GRAPH), shares(GRAPH, 3), uniform(1, 9, 3, 2)
    weights = propagation(edges, weight, normalize)
    ours = weights.spread(x, edges)
    for k in range(3):
        dense = dense_propagation(GRAPH, weight[:, k], normalize)
        torch.testing.assert_close(ours[:, k], dense @ x[:, k])


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_gradients_of_propagation_match_finite_differences(normalize: str) -> None:
    graph = path(4)
    edges, weight = Adjacency(*graph), shares(graph, 2).requires_grad_()
    x = uniform(2, 4, 2, 3).requires_grad_()

    def spread(weight: Tensor, x: Tensor) -> Tensor:
        return propagation(edges, weight, normalize).spread(x, edges)

    assert torch.autograd.gradcheck(spread, (weight, x))


@pytest.mark.parametrize("normalize", ["community", "graph"])
def test_one_community_normalises_as_gcn_does(normalize: str) -> None:
    ours = GCNConv(4, 3).double()
    scramble(ours)
    theirs = pyg.GCNConv(4, 3).double()
    state = ours.state_dict()
    theirs.load_state_dict({"lin.weight": state["linear.weight"][0].t(), "bias": state["bias"][0]})
    x, edges = uniform(0, 9, 4), Adjacency(*GRAPH)
    weight = propagation(edges, torch.ones(GRAPH.edge_index.size(1), 1).double(), normalize)
    torch.testing.assert_close(ours(x, edges, weight)[:, 0], theirs(x, GRAPH.edge_index))


@pytest.mark.parametrize("training", [True, False])
def test_one_community_is_gin(training: bool) -> None:
    ours = GINConv(4, 3).double().train(training)
    scramble(ours)
    mlp = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 3))
    theirs = pyg.GINConv(mlp, train_eps=True).double().train(training)
    state = ours.state_dict()
    norm = {f"nn.1.{k.removeprefix('norm.norm.')}": v for k, v in state.items() if "norm" in k}
    theirs.load_state_dict(
        {
            "eps": state["eps"],
            "nn.0.weight": state["first.weight"][0].t(),
            "nn.0.bias": state["bias"][0],
            **norm,
            "nn.3.weight": state["second.weight"][0].t(),
            "nn.3.bias": state["second.bias"][0],
        }
    )
    x, edges = uniform(0, 9, 4), Adjacency(*GRAPH)
    weight = plain_propagation(edges, x, "gin")
    torch.testing.assert_close(ours(x, edges, weight)[:, 0], theirs(x, GRAPH.edge_index))


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("shared", [True, False])
def test_linear_maps_run_side_by_side(heads: int, shared: bool) -> None:
    linear = CommunityLinear(4, 2, heads).double()
    scramble(linear)
    assert linear.bias is not None
    x = uniform(0, 5, 4) if shared else uniform(0, 5, heads, 4)
    for k in range(heads):
        expected = (x if shared else x[:, k]) @ linear.weight[k] + linear.bias[k]
        torch.testing.assert_close(linear(x)[:, k], expected)


def test_norm_standardises_every_channel_of_every_community() -> None:
    x = uniform(0, 50, 3, 2) * torch.arange(1, 7).view(3, 2) + 5
    y = CommunityNorm(2, 3).double()(x)
    torch.testing.assert_close(y.mean(0), torch.zeros(3, 2).double())
    torch.testing.assert_close(y.var(0, correction=0), torch.ones(3, 2).double(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("nodes", [0, 1])
def test_norm_of_too_few_nodes_uses_running_values_and_leaves_them(nodes: int) -> None:
    norm = CommunityNorm(2, 3).double()
    scramble(norm)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    x = uniform(0, nodes, 3, 2)
    in_training = norm(x)
    torch.testing.assert_close(in_training, norm.eval()(x))
    assert all(value.equal(before[name]) for name, value in norm.state_dict().items())


def test_unknown_convolution_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="conv must be one of gcn, gin, sage, got 'gat'"):
        convolution("gat", 2, 2)


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("out_channels", [2, 7])
def test_sums_before_and_after_the_map_are_the_same(normalize: str, out_channels: int) -> None:
    layer = GCNConv(4, out_channels, heads=3).double()
    scramble(layer)
    weight, x = shares(GRAPH, 3), uniform(1, 9, 3, 4)
    ours = layer(x, Adjacency(*GRAPH), propagation(Adjacency(*GRAPH), weight, normalize))
    for k in range(3):
        dense = dense_propagation(GRAPH, weight[:, k], normalize)
        expected = dense @ x[:, k] @ layer.linear.weight[k] + layer.bias[k]
        torch.testing.assert_close(ours[:, k], expected)


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_a_node_can_have_weights_of_its_own(normalize: str) -> None:
    layer = GCNConv(4, 3, heads=2, root_weight=True).double()
    scramble(layer)
    weight, x = shares(GRAPH, 2), uniform(1, 9, 2, 4)
    ours = layer(x, Adjacency(*GRAPH), propagation(Adjacency(*GRAPH), weight, normalize))
    for k in range(2):
        around = dense_propagation(GRAPH, weight[:, k], normalize).fill_diagonal_(0)
        own = x[:, k] @ layer.get_parameter("root.weight")[k]
        expected = around @ x[:, k] @ layer.linear.weight[k] + own + layer.bias[k]
        torch.testing.assert_close(ours[:, k], expected)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("layer", [GCNConv, GINConv, partial(GCNConv, root_weight=True)])
def test_layers_can_be_used_alone(layer: Layer, heads: int) -> None:
    graph = random_graph(5)
    torch.manual_seed(0)
    conv = layer(4, 3, heads=heads)
    x = torch.rand(5, 4)
    ones = torch.ones(graph.edge_index.size(1), heads)
    torch.testing.assert_close(conv(x, graph.edge_index), conv(x, graph.edge_index, ones))
    assert f"4, 3, heads={heads}" in repr(conv)
    before = conv(x, graph.edge_index)
    torch.manual_seed(1)
    conv.reset_parameters()
    assert not torch.allclose(conv(x, graph.edge_index), before)


@pytest.mark.parametrize("layer", [GCNConv, GINConv, partial(GCNConv, root_weight=True)])
def test_weights_without_a_column_per_head_are_refused(
    layer: Layer,
) -> None:
    with pytest.raises(ValueError, match="a column per community"):
        layer(4, 3)(torch.rand(9, 4), GRAPH.edge_index, torch.ones(GRAPH.edge_index.size(1)))


def test_gcn_alone_equals_pyg() -> None:
    graph = random_graph(6)
    ours, theirs = GCNConv(4, 3), pyg.GCNConv(4, 3)
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.linear.weight[0].t())
    x, weight = torch.rand(6, 4), torch.rand(graph.edge_index.size(1))
    torch.testing.assert_close(
        ours(x, graph.edge_index, weight[:, None])[:, 0], theirs(x, graph.edge_index, weight)
    )
