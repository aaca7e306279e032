"""Training on the nodes of a large graph in another order changes nothing but rounding."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from strategies import quick, random_graph, seeds
from training.toys import SMALL, run, same_run, toy
from vepm.scale import large
from vepm.scale.large import good_order, in_order, worth_ordering
from vepm.training import Config, fit, single_graph
from vepm.training.fitting import _order_is_free

STILL = SMALL["node"].replace(dropout=0.0, sampling=False, scheme="joint", pretrain_epochs=0)
"""Settings that draw nothing while training."""


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "ROWS_IN_CACHE", 8)


def labelled(nodes: int, seed: int) -> Data:
    edges = random_graph(nodes, seed=seed).edge_index
    x = torch.rand(nodes, 3, generator=torch.Generator().manual_seed(seed))
    y = torch.arange(nodes)
    return Data(x=x, edge_index=edges, y=y, train_mask=y % 3 == 0)


@quick
@given(st.integers(1, 12), seeds)
def test_everything_moves_with_its_node(nodes: int, seed: int) -> None:
    graph = labelled(nodes, seed)
    order = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))
    moved = in_order(graph, order)
    assert torch.equal(moved.y, order)
    assert torch.equal(moved.x, graph.x[order])
    assert torch.equal(moved.train_mask, graph.train_mask[order])
    back = order[moved.edge_index]
    assert sorted(back.t().tolist()) == sorted(graph.edge_index.t().tolist())
    assert torch.equal(moved.edge_index[1], moved.edge_index[1].sort().values)


def test_sparse_features_move_too() -> None:
    graph = labelled(6, 0)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    dense = in_order(graph, order).x
    graph.x = graph.x.to_sparse_coo()
    assert torch.equal(in_order(graph, order).x.to_dense(), dense)


def test_neighbours_come_to_stand_close_together(small_cache: None) -> None:
    mixed = torch.arange(32).view(4, 8).t().flatten()
    pairs = torch.combinations(torch.arange(8)).t()
    blocks = torch.cat([pairs + 8 * block for block in range(4)], dim=1)
    edges = mixed.argsort()[torch.cat([blocks, blocks.flip(0)], dim=1)]
    edges = edges[:, edges[1].argsort(stable=True)]
    order = good_order(Data(x=torch.ones(32, 1), edge_index=edges))
    place = order.argsort()
    assert (place[edges[0]] // 8 == place[edges[1]] // 8).all()


def test_a_run_is_the_same_but_for_rounding(small_cache: None) -> None:
    ordered = run("node", STILL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "ROWS_IN_CACHE", 2**16)
        plain = run("node", STILL)
    assert not same_run(ordered, plain)
    for one, other in zip(ordered.history, plain.history, strict=True):
        for name in ("loss", "val_loss", "test_accuracy"):
            assert one.get(name) == pytest.approx(other.get(name), abs=1e-4)
    assert torch.equal(ordered.source.y, toy("node").graphs[0].y)


def test_the_same_seed_gives_the_same_bits(small_cache: None) -> None:
    assert same_run(run("node"), run("node"))


def test_what_depends_on_the_order_or_needs_no_cache_keeps_it(small_cache: None) -> None:
    graph = toy("node").graphs[0]
    assert worth_ordering(graph, "cpu")
    assert not worth_ordering(graph, "cuda")
    batch = single_graph(graph)
    assert _order_is_free(Config(), toy("node"), batch)
    assert not _order_is_free(Config().replace(partition="random"), toy("node"), batch)
    assert not _order_is_free(Config().replace(inputs="random"), toy("node"), batch)


def test_unlabelled_graphs_are_ordered_too(small_cache: None) -> None:
    fitted = fit(toy("node"), SMALL["node"], device="cpu")
    assert fitted.history[-1]["phase"] == "pretrain"
