"""The inference network: a Weibull per node and community."""

import math

import pytest
import torch
import torch_geometric.nn as pyg
from torch.distributions import Weibull

from strategies import no_edges, random_graph, scramble, uniform
from vepm.nn import Adjacency, CommunityEncoder

GRAPH = random_graph(9)


def test_two_layers_are_two_gcn_layers_read_as_scale_and_shape() -> None:
    encoder = CommunityEncoder(4, 3, hidden_channels=5, batch_norm=False).double().eval()
    scramble(encoder)
    x, h = uniform(0, 9, 4), uniform(0, 9, 4)
    for i, widths in enumerate([(4, 5), (5, 6)]):
        layer, state = pyg.GCNConv(*widths).double(), encoder.layers[i].state_dict()
        weight, bias = state["linear.weight"][0].t(), state["bias"][0]
        layer.load_state_dict({"lin.weight": weight, "bias": bias})
        h = layer(torch.relu(h) if i else h, GRAPH.edge_index)
    for edges in GRAPH.edge_index, Adjacency(*GRAPH):
        posterior = encoder(x, edges)
        softplus = torch.nn.functional.softplus
        torch.testing.assert_close(posterior.scale, softplus(h[:, :3] - 2) + 1e-6)
        torch.testing.assert_close(posterior.concentration, softplus(h[:, 3:] + 1.5) + 0.3)


@pytest.mark.parametrize("shape", ["entry", "node"])
@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_starts_with_low_noise_and_few_expected_edges(conv: str, shape: str) -> None:
    torch.manual_seed(0)
    posterior = CommunityEncoder(4, 6, conv=conv, shape=shape).eval()(
        1e-3 * torch.rand(9, 4), GRAPH.edge_index
    )
    assert posterior.concentration.mean().item() == pytest.approx(2, abs=0.02)
    assert posterior.scale.mean().item() == pytest.approx(math.log1p(math.exp(-2)), abs=0.01)


def test_shape_per_node_or_per_entry() -> None:
    torch.manual_seed(0)
    per_node = CommunityEncoder(4, 6, shape="node")(torch.rand(9, 4), GRAPH.edge_index)
    assert per_node.concentration.shape == per_node.scale.shape == (9, 6)
    assert (per_node.concentration == per_node.concentration[:, :1]).all()
    assert per_node.concentration[:, 0].unique().numel() == 9
    per_entry = CommunityEncoder(4, 6, shape="entry")(torch.rand(9, 4), GRAPH.edge_index)
    assert per_entry.concentration.unique().numel() == 54


@pytest.mark.parametrize("size", [0.0, 1e4])
@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_posterior_is_proper_whatever_the_features(conv: str, size: float) -> None:
    torch.manual_seed(0)
    encoder = CommunityEncoder(4, 6, conv=conv, batch_norm=False).eval()
    posterior: Weibull = encoder(size * torch.randn(9, 4), GRAPH.edge_index)
    assert posterior.scale.min() > 0
    assert posterior.concentration.min() >= 0.3
    assert posterior.rsample().isfinite().all()


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_depth_and_widths(layers: int) -> None:
    encoder = CommunityEncoder(4, 3, hidden_channels=5, num_layers=layers)
    posterior = encoder(torch.rand(6, 4), no_edges(6).edge_index)
    assert len(encoder.layers) == layers
    assert len(encoder.norms) == layers - 1
    assert posterior.scale.shape == (6, 3)


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    encoder, x = CommunityEncoder(4, 3, dropout=0.5), torch.rand(9, 4)
    first, second = encoder(x, GRAPH.edge_index), encoder(x, GRAPH.edge_index)
    assert not first.scale.equal(second.scale)
    encoder.eval()
    assert encoder(x, GRAPH.edge_index).scale.equal(encoder(x, GRAPH.edge_index).scale)


def test_unknown_shape_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="shape must be one of entry, node, got 'graph'"):
        CommunityEncoder(4, 3, shape="graph")


@pytest.mark.parametrize("shape", ["entry", "node"])
def test_all_nodes_belong_alike_to_the_background(shape: str) -> None:
    encoder = CommunityEncoder(5, 4, shape=shape, num_background=1)
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    posterior = encoder(torch.rand(3, 5), edge_index)
    mean, deviation = posterior.mean.detach(), posterior.stddev.detach()
    assert mean.shape == (3, 4)
    assert (mean[:, 3] == mean[0, 3]).all()
    assert float(mean[0, 3]) == pytest.approx(0.1, rel=0.02)
    assert deviation[0, 3] < 0.03 * mean[0, 3]
    assert (mean[:, :3].std(0) > 0).all()
