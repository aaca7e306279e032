"""Renumbering the nodes renumbers the answers and changes nothing else."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strategies import Graph, GraphBatch, batches, quick, scramble, seeds, simple_graphs, uniform
from vepm import VEPM
from vepm.nn import Adjacency
from vepm.nn.convolution import NORMALIZATIONS

# The random split is left out: it belongs to an edge by its nodes' numbers.
PARTITIONS = st.sampled_from(["learned", "even"])
CONVOLUTIONS = st.sampled_from(["gcn", "gin", "sage"])


def build(task: str, conv: str, normalize: str, partition: str) -> VEPM:
    model = VEPM(
        4,
        2,
        task=task,
        num_communities=5,
        num_metacommunities=2,
        hidden_channels=4,
        encoder_channels=4,
        conv=conv,
        normalize=normalize,
        partition=partition,
    )
    scramble(model)
    return model.double().eval()


@given(simple_graphs(min_nodes=1), CONVOLUTIONS, st.sampled_from(NORMALIZATIONS), PARTITIONS, seeds)
@quick
def test_node_predictions_move_with_their_nodes(
    graph: Graph, conv: str, normalize: str, partition: str, seed: int
) -> None:
    model, x = build("node", conv, normalize, partition), uniform(seed, graph.num_nodes, 4, low=-1)
    old = uniform(seed + 1, graph.num_nodes).argsort()
    new = old.argsort()
    order = uniform(seed + 2, graph.edge_index.size(1)).argsort()
    here = model(x, graph.edge_index)
    there = model(x[old], new[graph.edge_index[:, order]])
    torch.testing.assert_close(there.logits, here.logits[old])
    torch.testing.assert_close(there.z, here.z[old])
    torch.testing.assert_close(there.edge_weight, here.edge_weight[order])
    torch.testing.assert_close(there.community_embeddings, here.community_embeddings[old])


@given(batches(), CONVOLUTIONS, st.sampled_from(NORMALIZATIONS), PARTITIONS, seeds)
@quick
def test_graph_predictions_do_not_depend_on_the_numbering(
    batch: GraphBatch, conv: str, normalize: str, partition: str, seed: int
) -> None:
    model = build("graph", conv, normalize, partition)
    nodes = batch.batch.numel()
    x = uniform(seed, nodes, 4, low=-1)
    # Nodes change places within their own graph only.
    old = (uniform(seed + 1, nodes, low=0, high=0.5) + batch.batch).argsort()
    here = model(x, batch.edge_index, batch.batch)
    there = model(x[old], old.argsort()[batch.edge_index], batch.batch)
    torch.testing.assert_close(there.logits, here.logits)
    torch.testing.assert_close(there.embeddings, here.embeddings)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_an_adjacency_stands_for_its_edges(task: str) -> None:
    model, graph = (
        build(task, "gin", "community", "learned"),
        Graph(torch.tensor([[0, 1], [1, 0]]), 3),
    )
    x = uniform(0, 3, 4)
    edges = Adjacency(*graph)
    for _ in range(2):
        assert model(x, edges).logits.equal(model(x, graph.edge_index).logits)
