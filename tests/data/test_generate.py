import math

import pytest
import torch

from vepm.data import planted_graph, sample_graph
from vepm.data.canonical import canonical_edges
from vepm.errors import InputError


def test_pairs_occur_at_the_rates_of_the_model() -> None:
    z = torch.tensor([[0.9, 0.1], [0.5, 0.8], [0.0, 1.2], [1.5, 0.0]])
    activation = torch.tensor([0.7, 0.4])
    copies = 400
    draws = 10 * copies
    hits = torch.zeros(4, 4)
    # Many independent copies of the tiny graph, each with communities of its own, in one draw.
    copied = torch.block_diag(*[z] * copies)
    for seed in range(10):
        row, col = sample_graph(copied, activation.repeat(copies), seed=seed)
        assert (row // 4 == col // 4).all()
        hits.index_put_((row % 4, col % 4), torch.ones(row.numel()), accumulate=True)
    rate = (z * activation) @ z.t()
    chance = 1 - torch.exp(-rate)
    upper = torch.triu(torch.ones(4, 4), diagonal=1).bool()
    spread = (chance * (1 - chance) / draws).sqrt()
    score = ((hits / draws - chance) / spread.clamp_min(1e-9))[upper]
    assert hits.diagonal().sum() == 0
    assert hits[2, 3] == 0
    assert score[chance[upper] > 0].abs().max() < 4.0


def test_the_draw_is_canonical_and_repeats_by_seed() -> None:
    z = torch.rand(50, 4, generator=torch.Generator().manual_seed(0))
    first = sample_graph(z, torch.ones(4), seed=7)
    assert first.equal(sample_graph(z, torch.ones(4), seed=7))
    assert not first.equal(sample_graph(z, torch.ones(4), seed=8))
    canonical, found = canonical_edges(first, 50)
    assert first.equal(canonical)
    assert found == []


def test_without_a_seed_the_global_generator_is_used() -> None:
    z = torch.ones(30, 2)
    torch.manual_seed(3)
    first = sample_graph(z, torch.full((2,), 0.1))
    torch.manual_seed(3)
    assert first.equal(sample_graph(z, torch.full((2,), 0.1)))


@pytest.mark.parametrize(
    ("z", "activation"),
    [
        (torch.ones(5, 2), torch.zeros(2)),
        (torch.ones(1, 2), torch.full((2,), 100.0)),
        (torch.zeros(5, 2), torch.ones(2)),
        (torch.empty(0, 2), torch.ones(2)),
        (torch.empty(5, 0), torch.empty(0)),
    ],
)
def test_degenerate_models_have_no_edges(z: torch.Tensor, activation: torch.Tensor) -> None:
    assert sample_graph(z, activation, seed=0).shape == (2, 0)


def test_a_silent_community_joins_no_one() -> None:
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 9.0], [0.0, 9.0]])
    edges = sample_graph(z, torch.tensor([0.0, 9.0]), seed=0)
    assert edges.tolist() == [[3, 2], [2, 3]]


def test_affiliations_of_very_different_size_are_kept_apart() -> None:
    z = torch.full((1000, 2), 1e-6)
    z[0, 0] = z[1, 0] = 1e4
    row, col = sample_graph(z, torch.tensor([1e-3, 0.0]), seed=0)
    assert {0, 1} <= set(row.tolist())
    assert row.max() < 1000
    assert (row != col).all()


@pytest.mark.parametrize(
    ("z", "activation", "message"),
    [
        (torch.ones(3), torch.ones(1), "are needed"),
        (torch.ones(3, 2), torch.ones(3), "are needed"),
        (-torch.ones(3, 2), torch.ones(2), "z holds negative"),
        (torch.ones(3, 2), torch.tensor([1.0, math.nan]), "activation holds"),
    ],
)
def test_bad_models_are_refused(z: torch.Tensor, activation: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sample_graph(z, activation)


def test_a_planted_graph_is_what_was_asked_for() -> None:
    dataset = planted_graph(2000, 5, average_degree=12, overlap=0.2, num_features=7, seed=1)
    data = dataset.graphs[0]
    assert (data.num_nodes, dataset.num_classes, dataset.num_features) == (2000, 5, 7)
    assert data.edge_index.size(1) / 2000 == pytest.approx(12, rel=0.1)
    share = data.memberships / data.memberships.sum(dim=1, keepdim=True)
    assert share.gather(1, data.y[:, None]).allclose(torch.tensor(0.8))
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert masks.sum(dim=0).eq(1).all()
    assert data.train_mask.sum() == 50
    row, col = data.edge_index
    assert (data.y[row] == data.y[col]).float().mean() > 0.5


def test_planted_graphs_repeat_by_seed() -> None:
    first, second = (planted_graph(100, 3, seed=2).graphs[0] for _ in range(2))
    assert first.edge_index.equal(second.edge_index)
    assert first.x.equal(second.x)
    assert planted_graph(100, 3).graphs[0].x.shape == (100, 32)


def test_a_community_may_be_alone_and_a_graph_without_edges() -> None:
    assert planted_graph(50, 1, seed=0).num_classes == 1
    assert planted_graph(50, 2, average_degree=0, seed=0).graphs[0].edge_index.size(1) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_nodes": 5, "num_communities": 3}, "5 nodes in 3 communities"),
        ({"num_nodes": 5, "num_communities": 0}, "at least 1 community"),
        ({"overlap": 1.0}, "overlap is 1.0"),
        ({"num_features": 0}, "num_features is 0"),
        ({"average_degree": 1000}, "give 0 to 100"),
    ],
)
def test_impossible_plans_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        planted_graph(**arguments)
