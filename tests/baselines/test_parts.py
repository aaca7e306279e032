"""The pieces the baselines are made of, against hand-made or independent answers."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from baselines.toys import cycle, graph_toy, star
from vepm.baselines.base import Labelled
from vepm.baselines.disengcn import DisenConv
from vepm.baselines.factorgcn import FactorConv, FactorDiscriminator, FactorGCN
from vepm.baselines.grand import GRAND, disagreement, mean_of_powers
from vepm.baselines.nodes import GAT, FeatureDropout, LabelProp, unit_rows
from vepm.baselines.svm import wl_features, wl_kernels
from vepm.data import Dataset
from vepm.evaluation import Split
from vepm.nn import Adjacency
from vepm.training import GraphBatch, GraphStore


def one_graph(x: torch.Tensor, edge_index: torch.Tensor) -> GraphBatch:
    none = torch.empty(0, dtype=torch.long)
    batch = torch.zeros(x.size(0), dtype=torch.long)
    return GraphBatch(x, Adjacency(edge_index, x.size(0)), none, batch)


def path(num_nodes: int) -> torch.Tensor:
    line = torch.stack([torch.arange(num_nodes - 1), torch.arange(1, num_nodes)])
    return torch.cat([line, line.flip(0)], dim=1)


def test_dropout_of_features_keeps_zeros_and_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.ones(2000, 1), torch.zeros(2000, 1)], dim=1)
    drop = FeatureDropout(0.5)
    dropped = drop(x)
    assert set(dropped[:, 0].tolist()) == {0.0, 2.0}
    assert dropped[:, 0].mean() == pytest.approx(1.0, abs=0.1)
    assert not dropped[:, 1].any()
    sparse = drop(x.to_sparse_coo().coalesce())
    assert set(sparse.values().tolist()) == {0.0, 2.0}
    assert drop.eval()(x) is x


def test_routing_shares_sum_to_one_and_centres_have_unit_length() -> None:
    torch.manual_seed(0)
    graph = one_graph(torch.randn(6, 4), cycle(6))
    centre, share = DisenConv(num_iterations=3)(torch.randn(6, 4, 2), graph.edges)
    assert share.shape == (12, 4)
    assert torch.allclose(share.sum(dim=1), torch.ones(12))
    assert torch.allclose(centre.norm(dim=2), torch.ones(6, 4))


def test_routing_prefers_the_channel_in_which_neighbours_agree() -> None:
    x = torch.tensor([[[2.0, 0.0], [3.0, 0.0]], [[4.0, 0.0], [-5.0, 0.0]]])
    graph = one_graph(torch.ones(2, 1), torch.tensor([[0, 1], [1, 0]]))
    share = DisenConv(num_iterations=1)(x, graph.edges)[1]
    expected = torch.softmax(torch.tensor([1.0, -1.0]), dim=0)
    assert torch.allclose(share, expected.expand(2, 2))


def test_routing_survives_channels_that_are_zero() -> None:
    graph = one_graph(torch.ones(4, 1), cycle(4))
    x = torch.zeros(4, 2, 3, requires_grad=True)
    DisenConv(num_iterations=6)(x, graph.edges)[0].sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())
    assert float(x.grad.abs().max()) < 1e3


def test_each_factor_has_its_own_edge_weights_between_zero_and_one() -> None:
    torch.manual_seed(0)
    graph = one_graph(torch.randn(6, 4), cycle(6))
    x, share = FactorConv(4, 12, num_factors=3)(graph.x, graph)
    assert x.shape == (6, 12)
    assert share.shape == (12, 3)
    assert bool(((share > 0) & (share < 1)).all())


def test_factor_convolution_with_full_edges_is_a_plain_graph_convolution() -> None:
    torch.manual_seed(0)
    graph = one_graph(torch.randn(5, 4), cycle(5))
    layer = FactorConv(4, 6, num_factors=2).eval()
    with torch.no_grad():
        layer.to_score.bias.fill_(100.0)
    dense = torch.eye(5)
    dense[graph.edges.source, graph.edges.target] = 1.0
    expected = torch.relu(layer.norm(dense / 3 @ layer.project(graph.x)))
    assert torch.allclose(layer(graph.x, graph)[0], expected, atol=1e-6)


def test_discriminator_cannot_tell_equal_factors_apart() -> None:
    torch.manual_seed(0)
    batch = GraphStore(graph_toy(4).graphs).select(torch.arange(4))
    loss = FactorDiscriminator(2, 8, num_factors=3)
    same = torch.full((batch.edges.edge_index.size(1), 3), 0.5)
    assert loss(batch.x, same, batch).item() >= torch.tensor(3.0).log()


def test_discriminator_counts_in_training_only() -> None:
    torch.manual_seed(0)
    batch = GraphStore(graph_toy(4).graphs).select(torch.arange(4))
    weighed, free = (
        FactorGCN(num_factors=4, discriminator_weight=weight).build(2, 2) for weight in (0.5, 0.0)
    )
    labelled = Labelled(batch, slice(None), batch.y)
    assert weighed.losses(labelled)[1] > 0
    assert free.losses(labelled)[1] == 0


def test_mean_of_powers_on_a_dense_graph() -> None:
    x = torch.randn(5, 3)
    graph = one_graph(x, star(5))
    matrix = torch.eye(5)
    matrix[graph.edges.source, graph.edges.target] = 1.0
    degree = matrix.sum(1).rsqrt()
    matrix = degree[:, None] * matrix * degree
    expected = (x + matrix @ x + matrix @ matrix @ x) / 3
    found = mean_of_powers(x, graph.edges.edge_index, 2)
    assert torch.allclose(found, expected, atol=1e-6)


def test_passes_should_agree_on_a_sharpened_mean() -> None:
    passes = torch.tensor([[[0.9, 0.1]], [[0.7, 0.3]]])
    # The mean is (0.8, 0.2).
    target = torch.tensor([0.8, 0.2]) ** 2.5
    expected = (passes - target / target.sum()).square().sum(2).mean()
    assert disagreement(passes, 0.4).item() == pytest.approx(expected.item())
    assert disagreement(torch.eye(2)[None].expand(3, 2, 2), 0.5).item() == 0


def test_whole_nodes_are_dropped_in_training() -> None:
    torch.manual_seed(0)
    graph = one_graph(torch.ones(200, 1), torch.empty(2, 0, dtype=torch.long))
    model = GRAND(order=0, dropout=0.0, input_dropout=0.0).build(1, 2)
    nn.init.ones_(model.get_parameter("perceptron.2.weight"))
    rows = model(graph).unique(dim=0)
    # Without edges a node is read as it is or not at all; later, always at its mean.
    assert len(rows) == 2
    assert len(model.eval()(graph).unique(dim=0)) == 1


def test_label_propagation_on_a_path() -> None:
    y = torch.tensor([0, 0, 0, 1, 1, 1])
    data = Data(x=torch.ones(6, 1), edge_index=path(6), y=y)
    dataset = Dataset("path", "node", [data], 2, ("a", "b"))
    split = Split("ends", torch.tensor([0, 5]), torch.tensor([1, 4]), torch.tensor([2, 3]))
    result = LabelProp()(dataset, split, seed=0)
    assert result.test_accuracy == 1.0
    assert result.val_accuracy == 1.0


def test_wl_features_of_a_path_and_a_triangle() -> None:
    graphs = [Data(x=torch.ones(3, 1), edge_index=edges) for edges in (path(3), cycle(3))]
    counts = [layer.toarray().tolist() for layer in wl_features(graphs, 2)]
    assert counts[0] == [[3], [3]]
    # Ends of the path, then what has two neighbours: its middle and all of the triangle.
    assert counts[1] == [[2, 1], [0, 3]]
    # One end, the middle between two ends, and the triangle, whose neighbours look like itself.
    assert counts[2] == [[2, 1, 0], [0, 0, 3]]


def test_wl_features_see_node_labels_and_isolated_nodes() -> None:
    x = torch.eye(2)[[0, 1, 0]]
    graph = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]))
    first, second = (layer.toarray() for layer in wl_features([graph], 1))
    assert sorted(first[0].tolist()) == [1, 2]
    assert second.tolist() == [[1, 1, 1]]


def test_wl_kernel_is_blind_to_the_order_of_nodes() -> None:
    torch.manual_seed(0)
    graphs = graph_toy(6).graphs
    shuffled = []
    for graph in graphs:
        order = torch.randperm(graph.num_nodes)
        moved = Data(x=torch.empty_like(graph.x), edge_index=order[graph.edge_index])
        moved.x[order] = graph.x
        shuffled.append(moved)
    kernel = wl_kernels([*graphs, *shuffled], 3)[-1]
    assert kernel.diagonal() == pytest.approx(1.0)
    assert kernel[range(6), range(6, 12)] == pytest.approx(1.0)
    assert kernel[:6, :6] == pytest.approx(kernel[6:, 6:])


def test_gat_drops_out_single_projected_features() -> None:
    torch.manual_seed(0)
    x, nothing = torch.rand(50, 6), torch.empty(2, 0, dtype=torch.long)
    model = GAT(dropout=0.5).build(6, 4)
    layer = model.get_submodule("second")
    hidden = torch.rand(50, 64)
    # Without edges attention is all on the loop: it drops whole rows, never single entries.
    kept = layer(hidden, nothing) != 0
    assert (kept.any(1) & ~kept.all(1)).any()
    model.eval()
    assert (layer(hidden, nothing) != 0).all()
    assert model(one_graph(x, nothing)).shape == (50, 4)


def test_sparse_rows_have_unit_sum_as_those_of_a_table() -> None:
    table = torch.tensor([[0.0, 3.0, 1.0], [0.0, 0.0, 0.0], [-2.0, 0.0, 6.0]])
    expected = torch.tensor([[0.0, 0.75, 0.25], [0.0, 0.0, 0.0], [-0.25, 0.0, 0.75]])
    assert unit_rows(table).equal(expected)
    assert unit_rows(table.to_sparse()).to_dense().equal(expected)
