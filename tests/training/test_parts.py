"""What each part of the edges is worth, on graphs small enough to count by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from vepm.cli.train import part_in_words
from vepm.data import planted_relations
from vepm.errors import InputError
from vepm.measures import agreement_with_kinds, summarise_parts
from vepm.nn import VEPM
from vepm.training import Config, fit
from vepm.training.card import ModelCard

EDGES = torch.tensor([[1, 0, 2, 1], [0, 1, 1, 2]])
SHARES = torch.tensor([[0.75, 0.25], [0.75, 0.25], [0.25, 0.75], [0.25, 0.75]])
KINDS = torch.tensor([[True, False], [True, False], [False, True], [False, True]])


def path(kind_names: tuple[str, ...] | None = None) -> Any:
    graph = Data(edge_index=EDGES, edge_kind=KINDS, num_nodes=3)
    labels = torch.tensor([0, 0, 1])
    return SimpleNamespace(graphs=[graph], labels=labels, single_graph=True, kind_names=kind_names)


def model(composer: str = "weighted") -> VEPM:
    return VEPM(3, 2, num_communities=4, num_metacommunities=2, composer=composer)


def test_parts_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    train = torch.tensor([0, 1, 2])
    monkeypatch.setattr("vepm.measures.FEWEST_JOINED", 2)
    first, second = summarise_parts(model(), path(("a", "b")), train, EDGES, SHARES)
    assert first["relevance"] == second["relevance"] == 1
    assert first["share"] == second["share"] == 0.5
    assert first["homophily"] == pytest.approx(0.75)
    assert second["homophily"] == pytest.approx(0.25)
    assert first["kinds"] == {"a": pytest.approx(0.75), "b": pytest.approx(0.25)}
    monkeypatch.setattr("vepm.measures.FEWEST_JOINED", 3)
    few = summarise_parts(model(), path(), train, EDGES, SHARES)
    assert [part["homophily"] for part in few] == [None, None]


def test_parts_without_relevance_kinds_or_labelled_pairs() -> None:
    parts = summarise_parts(model("gnn"), path(), torch.tensor([0]), EDGES, SHARES)
    assert [part["relevance"] for part in parts] == [None, None]
    assert [part["homophily"] for part in parts] == [None, None]
    assert parts[0]["kinds"] == {}


def test_an_even_split_says_nothing_about_kinds() -> None:
    kinds = torch.tensor([[True, False], [False, True]]).repeat(10, 1)
    found = agreement_with_kinds(torch.full((20, 2), 0.5), kinds)
    assert found == (0, 0.5)


def test_edges_of_several_kinds_count_for_the_ranking_alone() -> None:
    kinds = torch.tensor([[True, True], [True, False], [False, True], [False, False]])
    shares = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.1, 0.9], [0.5, 0.5]])
    found = agreement_with_kinds(shares, kinds)
    assert found == pytest.approx((1, 0.875))


def test_a_split_by_kinds_has_a_part_for_each() -> None:
    data = planted_relations(60, num_relations=3, num_communities=2, seed=0)
    config = Config().replace(
        partition="kinds", num_communities=2, num_metacommunities=2, epochs=1, pretrain_epochs=1
    )
    train = data.graphs[0].train_mask.nonzero().flatten()
    fitted = fit(data, config, train_on=train, validate_on=train, device="cpu")
    assert fitted.model.partitioner.num_metacommunities == 3
    assert fitted.card.config.model.num_communities == 3


def test_a_split_by_kinds_needs_kinds() -> None:
    data = planted_relations(60, num_communities=2, seed=0)
    with pytest.raises(InputError, match="are unknown"):
        ModelCard.of(replace(data, kind_names=None), Config().replace(partition="kinds"))


def test_a_part_in_words() -> None:
    part = {"relevance": 0.0123, "share": 0.5, "homophily": None, "kinds": {"author": 0.25}}
    assert part_in_words(part) == "weight 0.0123, 50 % of the edges, 25 % author"
