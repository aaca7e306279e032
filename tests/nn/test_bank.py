"""K communities in one packed bank against K networks built one by one, densely."""

import pytest
import torch
from torch import Tensor

from strategies import Graph, dense_propagation, no_edges, random_graph, scramble, shares, uniform
from vepm.nn import CommunityBank
from vepm.nn.convolution import NORMALIZATIONS

HEADS, WIDTH = 3, 2


def standardise(x: Tensor, state: dict[str, Tensor], name: str, k: int) -> Tensor:
    """Batch norm of community k with its stored statistics."""
    channels = slice(k * WIDTH, (k + 1) * WIDTH)
    mean, var, weight, bias = (
        state[f"{name}.norm.{part}"][channels]
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / torch.sqrt(var + 1e-5) * weight + bias


def gcn(x: Tensor, matrix: Tensor, state: dict[str, Tensor], layer: int, k: int) -> Tensor:
    weight, bias = state[f"layers.{layer}.linear.weight"][k], state[f"layers.{layer}.bias"][k]
    return torch.relu(matrix @ x @ weight + bias)


def gin(x: Tensor, matrix: Tensor, state: dict[str, Tensor], layer: int, k: int) -> Tensor:
    name = f"layers.{layer}"
    summed = matrix @ x + state[f"{name}.eps"][k] * torch.diag(torch.diag(matrix)) @ x
    hidden = summed @ state[f"{name}.first.weight"][k] + state[f"{name}.bias"][k]
    hidden = torch.relu(standardise(hidden, state, f"{name}.norm", k))
    out = hidden @ state[f"{name}.second.weight"][k] + state[f"{name}.second.bias"][k]
    return torch.relu(standardise(out, state, f"norms.{layer}", k))


@pytest.mark.parametrize("graph", [random_graph(9), no_edges(3)], ids=["random", "no edges"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_packed_bank_equals_separate_networks(
    conv: str, normalize: str, layers: int, graph: Graph
) -> None:
    bank = CommunityBank(
        4, HEADS * WIDTH, HEADS, num_layers=layers, conv=conv, normalize=normalize, dropout=0.5
    )
    bank.double().eval()
    scramble(bank)
    x, weight, state = uniform(0, graph.num_nodes, 4), shares(graph, HEADS), bank.state_dict()
    outputs = bank(x, graph.edge_index, weight)
    assert len(outputs) == layers
    for k in range(HEADS):
        matrix = dense_propagation(graph, weight[:, k], normalize)
        h = x
        for layer, output in enumerate(outputs):
            h = (gcn if conv == "gcn" else gin)(h, matrix, state, layer, k)
            torch.testing.assert_close(output[:, k], h)


def test_width_is_shared_out_and_rounded_down() -> None:
    bank = CommunityBank(4, 11, HEADS)
    graph = random_graph(5)
    (out,) = bank(torch.rand(5, 4), graph.edge_index, shares(graph, HEADS).float())
    assert out.shape == (5, HEADS, 3)
    assert bank.out_channels == 9


def test_dropout_acts_on_the_input_in_training_only() -> None:
    bank, graph = CommunityBank(4, 6, HEADS, dropout=1.0), random_graph(5)
    x, weight = torch.rand(5, 4), shares(graph, HEADS).float()
    assert bank.train()(x, graph.edge_index, weight)[0].eq(0).all()
    assert bank.eval()(x, graph.edge_index, weight)[0].ne(0).any()


def test_fewer_channels_than_communities_are_refused() -> None:
    with pytest.raises(ValueError, match=r"hidden_channels \(2\) must be at least .* \(3\)"):
        CommunityBank(4, 2, HEADS)


def test_unknown_normalisation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="none, graph, community, neighbours, got 'rows'"):
        CommunityBank(4, 6, HEADS, normalize="rows")
