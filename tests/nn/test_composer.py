"""Community embeddings merged into scores of nodes or of graphs."""

from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from strategies import Graph, complete, join, no_edges, path, random_graph, scramble, uniform
from vepm.nn import Adjacency, GraphComposer, NodeComposer
from vepm.nn.composer import Relevance

GRAPH = random_graph(7)
BATCH = join([path(3), no_edges(1), complete(4)])


def test_node_composer_is_a_stack_of_gcn_layers() -> None:
    composer = NodeComposer(5, 3, num_layers=2, dropout=0.5).double().eval()
    scramble(composer)
    h = expected = uniform(0, 7, 5)
    for i, width in enumerate([5, 3]):
        layer, state = pyg.GCNConv(5, width).double(), composer.layers[i].state_dict()
        weight, bias = state["linear.weight"][0].t(), state["bias"][0]
        layer.load_state_dict({"lin.weight": weight, "bias": bias})
        expected = layer(torch.relu(expected) if i else expected, GRAPH.edge_index)
    torch.testing.assert_close(composer(h, GRAPH.edge_index), expected)


def test_dense_node_composer_ignores_the_graph() -> None:
    composer, h = NodeComposer(5, 3, kind="fc").eval(), torch.rand(7, 5)
    scores = composer(h, GRAPH.edge_index)
    assert composer.dense is not None
    torch.testing.assert_close(scores, composer.dense(h))
    assert scores.equal(composer(h, no_edges(7).edge_index))


@pytest.mark.parametrize("kind", ["gnn", "fc"])
def test_scores_walk_as_personalised_pagerank_does(kind: str) -> None:
    far = NodeComposer(5, 3, kind=kind, hops=4, teleport=0.3).double().eval()
    near = NodeComposer(5, 3, kind=kind).double().eval()
    near.load_state_dict(far.state_dict())
    h = uniform(0, 7, 5)
    walk = pyg.APPNP(K=4, alpha=0.3)
    expected = walk(near(h, GRAPH.edge_index), GRAPH.edge_index)
    torch.testing.assert_close(far(h, GRAPH.edge_index), expected)


def compose(composer: GraphComposer, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    skips = [uniform(1, 8, 2), uniform(0, 8, 4)]
    scores, pooled = composer(uniform(0, 8, 4), edge_index, skips, BATCH.batch, 3)
    return scores, pooled


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize(("readout", "widths"), [("jumping", [2, 4, 4, 4]), ("last", [4])])
@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_graph_scores_add_up_linear_readings_of_pooled_states(
    conv: str, readout: str, widths: list[int], pooling: str
) -> None:
    composer = GraphComposer(4, [2, 4], 3, conv=conv, readout=readout, pooling=pooling)
    composer.double().eval()
    scramble(composer)
    scores, pooled = compose(composer, BATCH.edge_index)
    assert pooled.shape == (3, sum(widths))
    readings = [read(p) for read, p in zip(composer.readings, pooled.split(widths, 1), strict=True)]
    torch.testing.assert_close(scores, torch.stack(readings).sum(0))
    if readout == "jumping":
        members = [uniform(1, 8, 2)[BATCH.batch == g] for g in range(3)]
        reduced = [m.sum(0) if pooling == "sum" else m.mean(0) for m in members]
        torch.testing.assert_close(pooled[:, :2], torch.stack(reduced))


def test_dense_graph_composer_ignores_the_graph() -> None:
    composer = GraphComposer(4, [2, 4], 3, kind="fc").double().eval()
    scramble(composer)
    scores, pooled = compose(composer, BATCH.edge_index)
    assert composer.dense is not None
    node_states = torch.relu(composer.dense(uniform(0, 8, 4)))
    torch.testing.assert_close(pooled[1, -4:], node_states[3])
    assert scores.equal(compose(composer, no_edges(8).edge_index)[0])
    assert len(composer.layers) == 0


@pytest.mark.parametrize("option", ["kind", "pooling", "readout"])
def test_unknown_options_are_refused(option: str) -> None:
    unknown: dict[str, Any] = {option: "max"}
    with pytest.raises(ValueError, match=f"{option} must be one of .*, got 'max'"):
        GraphComposer(4, [4], 2, **unknown)
    with pytest.raises(ValueError, match="kind must be one of"):
        NodeComposer(4, 2, kind="max")


def test_dropout_acts_on_readings_in_training_only() -> None:
    composer = GraphComposer(4, [2, 4], 3, dropout=1.0).double()
    scramble(composer)
    assert compose(composer.train(), BATCH.edge_index)[0].eq(0).all()
    assert compose(composer.eval(), BATCH.edge_index)[0].ne(0).all()


def dense_relevance(relevance: Relevance, graph: Graph, shares: Tensor) -> Tensor:
    """The matrix P of :class:`Relevance`, written out."""
    size, weight = graph.num_nodes, relevance.weight
    total = torch.eye(size, dtype=shares.dtype) / 3
    for k in range(shares.size(1)):
        part = torch.zeros(size, size, dtype=shares.dtype)
        part.index_put_((graph.edge_index[1], graph.edge_index[0]), shares[:, k], accumulate=True)
        scale = (part.sum(1) + 1 / weight.numel()).rsqrt()
        total = total + 2 / 3 * weight[k] * scale[:, None] * part * scale / weight.numel()
    return total


def test_relevance_equals_its_matrix() -> None:
    graph = random_graph(7)
    torch.manual_seed(0)
    relevance = Relevance(3).double()
    with torch.no_grad():
        relevance.logit.normal_()
    shares = torch.rand(graph.edge_index.size(1), 3, dtype=torch.float64).softmax(1)
    h = torch.rand(7, 2, dtype=torch.float64)
    edges = Adjacency(*graph)
    ours = relevance(edges, shares).spread(h[:, None], edges).squeeze(1)
    torch.testing.assert_close(ours, dense_relevance(relevance, graph, shares) @ h)


def test_relevance_starts_at_one() -> None:
    assert Relevance(3).weight.tolist() == [1, 1, 1]


def test_relevance_is_one_on_average_and_a_part_fades_for_another() -> None:
    relevance = Relevance(3)
    with torch.no_grad():
        relevance.logit.copy_(torch.tensor([-2.0, -4.0, -1.0]))
    weight = relevance.weight
    torch.testing.assert_close(weight.mean(), torch.tensor(1.0))
    torch.testing.assert_close(weight[0] / weight[2], torch.tensor(-1.0).exp())


def test_the_same_graph_in_all_parts_is_weighed_alike_whatever_the_weights() -> None:
    graph = random_graph(5)
    relevance, start = Relevance(2), Relevance(2)
    with torch.no_grad():
        relevance.logit.copy_(torch.tensor([1.0, -1.0]))
    shares = torch.full((graph.edge_index.size(1), 2), 0.5)
    h, edges = torch.rand(5, 1, 3), Adjacency(*graph)
    torch.testing.assert_close(
        relevance(edges, shares).spread(h, edges), start(edges, shares).spread(h, edges)
    )


def test_a_part_of_the_graph_with_known_degrees_gives_the_same_messages() -> None:
    graph = random_graph(6)
    relevance, edges = Relevance(2), Adjacency(*graph)
    shares = torch.rand(graph.edge_index.size(1), 2).softmax(1)
    h = torch.rand(6, 1, 2)
    whole = relevance(edges, shares).spread(h, edges)
    into = graph.edge_index[1] < 3
    some = Adjacency(graph.edge_index[:, into], 6)
    part = relevance(some, shares[into], edges.sum_at_target(shares)).spread(h, some)
    torch.testing.assert_close(part[:3], whole[:3])


@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_a_weighted_composer_needs_shares(conv: str) -> None:
    graph = random_graph(5)
    composer = NodeComposer(4, 2, kind="weighted", num_metacommunities=2, conv=conv)
    with pytest.raises(ValueError, match="needs the shares of the edges"):
        composer(torch.rand(5, 4), graph.edge_index)


def test_weighted_sums_over_graphs_start_as_sums_over_the_plain_graph() -> None:
    graph = random_graph(5)
    torch.manual_seed(0)
    plain = GraphComposer(4, [4], 2, num_layers=1, conv="gin")
    torch.manual_seed(0)
    weighted = GraphComposer(
        4, [4], 2, kind="weighted", num_metacommunities=3, num_layers=1, conv="gin"
    )
    h, batch = torch.rand(5, 4), torch.zeros(5, dtype=torch.long)
    shares = torch.rand(graph.edge_index.size(1), 3).softmax(1)
    torch.testing.assert_close(
        weighted(h, graph.edge_index, [h], batch, 1, shares)[0],
        plain(h, graph.edge_index, [h], batch, 1)[0],
    )
