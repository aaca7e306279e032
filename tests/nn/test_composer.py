"""Community embeddings merged into scores of nodes or of graphs."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from strategies import complete, join, no_edges, path, random_graph, scramble, uniform
from vepm.nn import GraphComposer, NodeComposer

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


def test_dropout_acts_on_readings_in_training_only() -> None:
    composer = GraphComposer(4, [2, 4], 3, dropout=1.0).double()
    scramble(composer)
    assert compose(composer.train(), BATCH.edge_index)[0].eq(0).all()
    assert compose(composer.eval(), BATCH.edge_index)[0].ne(0).all()
