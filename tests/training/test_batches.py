"""Batches cut from the store are what PyG would have joined."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from strategies import Graph, complete, no_edges, path, quick, simple_graphs
from vepm.kernels.features import SparseFeatures, dense
from vepm.kernels.patterns import ragged
from vepm.training import GraphStore, single_graph


def as_data(graph: Graph, label: int) -> Data:
    x = torch.arange(2.0 * graph.num_nodes).view(-1, 2) + 100 * label
    return Data(x=x, edge_index=graph.edge_index, y=torch.tensor([label]))


stores = st.lists(simple_graphs(max_nodes=5), min_size=1, max_size=5).map(
    lambda graphs: [as_data(graph, label) for label, graph in enumerate(graphs)]
)


@quick
@given(st.data())
def test_selection_equals_the_batch_of_pyg(data: st.DataObject) -> None:
    graphs = data.draw(stores)
    number = st.integers(0, len(graphs) - 1)
    chosen = data.draw(st.lists(number, min_size=1, max_size=7))
    found = GraphStore(graphs).select(torch.tensor(chosen))
    expected = Batch.from_data_list([graphs[i] for i in chosen])
    assert torch.equal(dense(found.x), expected.x)
    assert torch.equal(found.edges.edge_index, expected.edge_index)
    assert found.edges.num_nodes == expected.x.size(0)
    assert found.batch is not None
    assert torch.equal(found.batch, expected.batch)
    assert torch.equal(found.y, expected.y)
    assert found.num_graphs == expected.num_graphs == len(chosen)


def test_graphs_may_be_repeated_reversed_and_empty() -> None:
    graphs = [as_data(g, i) for i, g in enumerate([path(3), no_edges(2), complete(3)])]
    found = GraphStore(graphs).select(torch.tensor([2, 1, 1, 0, 2]))
    assert found.y.tolist() == [2, 1, 1, 0, 2]
    assert found.batch is not None
    assert found.batch.tolist() == [0] * 3 + [1] * 2 + [2] * 2 + [3] * 3 + [4] * 3
    assert int(found.edges.edge_index.max()) == 12


def test_no_graphs_make_an_empty_batch() -> None:
    found = GraphStore([as_data(path(3), 0)]).select(torch.empty(0, dtype=torch.long))
    assert (found.num_graphs, found.x.size(0), found.edges.edge_index.size(1)) == (0, 0, 0)


def test_store_knows_how_many_graphs_it_has() -> None:
    assert len(GraphStore([as_data(path(2), 0)] * 3)) == 3


@quick
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.data())
def test_positions_of_chosen_groups(sizes: list[int], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=6))
    groups, position = [], 0
    for size in sizes:
        groups.append(list(range(position, position + size)))
        position += size
    counts = torch.tensor(sizes)
    found = ragged((counts.cumsum(0) - counts)[chosen], counts[chosen])
    assert found.tolist() == [member for i in chosen for member in groups[i]]


def test_single_graph_keeps_mostly_zero_features_sparse() -> None:
    graph = Data(x=torch.eye(8), edge_index=path(8).edge_index, y=torch.arange(8))
    found = single_graph(graph)
    assert isinstance(found.x, SparseFeatures)
    assert torch.equal(dense(found.x), graph.x)
    assert torch.equal(found.edges.edge_index, graph.edge_index)
    assert torch.equal(found.y, graph.y)
    assert (found.batch, found.num_graphs) == (None, 1)
    graph.x = torch.ones(8, 2)
    assert isinstance(single_graph(graph).x, torch.Tensor)
