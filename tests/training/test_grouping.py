"""Finetuning begins with communities that exclude each other in one metacommunity."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import one_hot

from training.test_resume import StopError, stop_after
from training.toys import SMALL, roles, run, same_run, toy, weights
from vepm.data import planted_relations
from vepm.evaluation import VEPMMethod, public_split
from vepm.nn import exclusive_groups
from vepm.training import Config, Fitted, Run, fit_many, fitting, loop, preset

STILL = 1e-12  # a learning rate at which finetuning shows where it began


def memberships(relations: int, communities: int, seed: int, nodes: int = 800) -> Tensor:
    """A community of each node in every relation, under noise [N, R B]."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.randint(communities, (nodes, relations), generator=generator)
    z = one_hot(own, communities).flatten(1).double()
    return z + 0.1 * torch.rand(z.shape, generator=generator)


@given(relations=st.integers(2, 4), communities=st.integers(2, 7), seed=st.integers(0, 99))
def test_relations_are_found(relations: int, communities: int, seed: int) -> None:
    z = memberships(relations, communities, seed)
    order = torch.randperm(z.size(1), generator=torch.Generator().manual_seed(seed))
    found = exclusive_groups(z[:, order])
    expected = {frozenset(range(r * communities, (r + 1) * communities)) for r in range(relations)}
    assert {frozenset(order[group].tolist()) for group in found} == expected


@pytest.mark.parametrize("seed", range(5))
def test_without_a_clear_structure_there_are_no_groups(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    assert exclusive_groups(torch.rand(500, 16, generator=generator)) == []
    assert exclusive_groups(memberships(1, 6, seed)) == []


@pytest.mark.parametrize("shape", [(5, 0), (5, 1), (5, 4), (1, 4), (0, 3)])
def test_nothing_to_compare(shape: tuple[int, int]) -> None:
    assert exclusive_groups(torch.ones(shape)) == []


def test_groups_are_sorted_by_size() -> None:
    z = torch.cat([memberships(1, 3, 0), memberships(1, 6, 1)], dim=1)
    assert exclusive_groups(z) == [[3, 4, 5, 6, 7, 8], [0, 1, 2]]


def settings(**changes: Any) -> Config:
    base = SMALL["node"].replace(shares="posterior", num_metacommunities=3, epochs=2)
    return base.replace(**{"learning_rate": STILL} | changes)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four communities of which the last three exclude each other."""
    monkeypatch.setattr(loop, "exclusive_groups", lambda z: [[1, 2, 3], [0]][: z.size(1)])


def begun(fitted: Fitted) -> list[list[float]]:
    """The assignment with which finetuning began."""
    logits: Tensor = weights(fitted)["partitioner.assignment_logit"]
    return logits.round(decimals=6).tolist()


GROUPED = [[0.0, 3.0, 0.0], [3.0, 0.0, 0.0], [3.0, 0.0, 0.0], [3.0, 0.0, 0.0]]
SEGMENTS = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize("batch_size", [0, 20])
def test_one_run_begins_with_the_groups(batch_size: int) -> None:
    assert begun(run("node", settings(batch_size=batch_size))) == GROUPED


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize("seeds", [(0, 0), (0, 1)])
def test_many_runs_begin_with_the_groups(seeds: tuple[int, int]) -> None:
    runs = [Run(*roles("node"), seed) for seed in seeds]
    for fitted in fit_many(toy("node"), settings(), runs, "cpu"):
        assert begun(fitted) == GROUPED


@pytest.mark.usefixtures("found")
def test_the_background_keeps_a_metacommunity_of_its_own() -> None:
    own = settings(encoder="background", num_communities=5)
    assert begun(run("node", own)) == [[*row[:2], 0.0] for row in GROUPED] + [[0.0, 0.0, 1.0]]


@pytest.mark.usefixtures("found")
def test_more_groups_than_metacommunities_share_the_last() -> None:
    narrow = settings(encoder="background", num_communities=5, num_metacommunities=2)
    assert begun(run("node", narrow)) == [[3.0, 0.0]] * 4 + [[0.0, 1.0]]


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize(
    "changes", [{"scheme": "scratch"}, {"pretrain_epochs": 0}, {"interactions": "matrix"}]
)
def test_groups_come_from_pretraining(changes: dict[str, Any]) -> None:
    expected = GROUPED if "interactions" in changes else SEGMENTS
    assert begun(run("node", settings(**changes))) == expected


def test_groups_that_are_not_clear_change_nothing() -> None:
    assert begun(run("node", settings())) == SEGMENTS


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize("epochs", [1, 3, 4])
def test_a_resumed_run_has_the_same_groups(
    epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_SAVES", 0.0)
    how: Any = {"config": settings(learning_rate=0.05), "checkpoint": tmp_path / "state"}
    with pytest.raises(StopError):
        run("node", progress=stop_after(epochs), **how)
    assert same_run(run("node", **how), run("node", how["config"]))


def test_parts_match_hidden_relations(monkeypatch: pytest.MonkeyPatch) -> None:
    data = planted_relations(800, 2, 6, strength=1.0, average_degree=20, seed=0)
    own = preset("default", "node").replace(partition="learned", num_communities=17, epochs=20)
    method, split = VEPMMethod(own, "cpu"), public_split(data)
    assert method(data, split, 0).measures["parts_by_kind"] > 0.5
    monkeypatch.setattr(loop, "exclusive_groups", lambda z: [])
    assert method(data, split, 0).measures["parts_by_kind"] < 0.3
