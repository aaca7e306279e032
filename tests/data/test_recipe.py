"""Generated graphs by name: what is asked for is what comes, and the rest is refused."""

import pytest
import torch

from vepm.data import load, planted_graph
from vepm.data.generate import DRAWN_AT_ONCE, sample_graph
from vepm.data.registry import RECIPES
from vepm.errors import InputError


def test_the_bare_name_is_the_small_graph_it_was() -> None:
    one, other = load("planted").graphs[0], planted_graph(seed=0).graphs[0]
    assert torch.equal(one.x, other.x)
    assert torch.equal(one.edge_index, other.edge_index)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nodes", "600"),
        ("edges", "3000"),
        ("communities", "4"),
        ("features", "5"),
        ("labels", "20"),
        ("overlap", "0.3"),
        ("seed", "1"),
    ],
)
def test_every_ingredient_changes_the_graph(name: str, value: str) -> None:
    base = load("planted:nodes=400,edges=1200").graphs[0]
    other = load(f"Planted:nodes=400,edges=1200,{name}={value}").graphs[0]
    assert name in RECIPES["planted"][1]
    same = base.x.shape == other.x.shape and torch.equal(base.x, other.x)
    same = same and torch.equal(base.edge_index, other.edge_index)
    assert not (same and torch.equal(base.train_mask, other.train_mask))


def test_what_is_asked_for_comes() -> None:
    dataset = load("planted:nodes=2000,edges=9000,communities=4,features=7,labels=30")
    graph = dataset.graphs[0]
    assert graph.x.shape == (2000, 7)
    assert dataset.num_classes == 4
    assert int(graph.train_mask.sum()) == 120
    assert graph.edge_index.size(1) / 2 == pytest.approx(9000, rel=0.05)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("node=5", "there is no node=5; .* of nodes, edges"),
        ("nodes=many", r"give a number \(int\)"),
        ("nodes", r"give a number \(int\)"),
        ("nodes=-5", "at least 0"),
        ("overlap=nan", "at least 0"),
        ("nodes=100,edges=100000", "average_degree"),
        ("nodes=1", "2 nodes for each"),
    ],
)
def test_odd_recipes_are_refused_in_one_line(recipe: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load(f"planted:{recipe}")
    assert "\n" not in str(caught.value)


def test_drawing_in_pieces_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.rand(300, 3, generator=torch.Generator().manual_seed(0))
    activation = torch.full((3,), 0.02)
    whole = sample_graph(z, activation, seed=4)
    assert whole.size(1) < DRAWN_AT_ONCE
    monkeypatch.setattr("vepm.data.generate.DRAWN_AT_ONCE", 100)
    assert torch.equal(sample_graph(z, activation, seed=4), whole)
