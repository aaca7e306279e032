from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from vepm import nn
from vepm.report import communities, figures, payload, read_run
from vepm.report.run import Floats, interactions

from .writing import write_node_run


@pytest.fixture
def memberships() -> Floats:
    return np.random.default_rng(0).gamma(0.5, 1.0, size=(30, 5))


def test_interactions_equal_the_double_loop(memberships: Floats) -> None:
    activation = np.linspace(0.5, 2.0, 5)
    found = interactions(memberships, activation, 2)
    for k, segment in enumerate((slice(0, 3), slice(3, 5))):
        z = memberships[:, segment]
        expected = (z @ np.diag(activation[segment]) @ z.T).sum(axis=1)
        np.testing.assert_allclose(found[:, k], expected)


def test_interactions_stay_within_a_graph(memberships: Floats) -> None:
    batch = np.repeat([0, 1], [12, 18])
    activation = np.ones(5)
    together = interactions(memberships, activation, 5, batch)
    apart = [interactions(memberships[batch == g], activation, 5) for g in (0, 1)]
    np.testing.assert_allclose(together, np.vstack(apart))


def test_order_is_by_bucket_then_strength() -> None:
    interaction = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 3.0], [0.5, 2.5], [4.0, 0.0]])
    order, bucket = figures.bucket_order(interaction)
    assert bucket.tolist() == [0, 1, 1, 1, 0]
    assert order.tolist() == [4, 0, 2, 3, 1]


def test_a_community_belongs_where_most_of_it_goes(tmp_path: Path) -> None:
    run = read_run(write_node_run(tmp_path / "run", nodes=40))
    few = replace(run, memberships=run.memberships[:, :5])
    assert few.part_of_each.tolist() == [0, 0, 1, 1, 2]
    learned = np.array([[0.2, 0.8, 0], [0.9, 0.1, 0], [0.4, 0.6, 0]])
    assert replace(run, assignment=learned).part_of_each.tolist() == [1, 0, 1]


def test_a_part_of_the_background_alone_is_named_so_and_has_no_members(tmp_path: Path) -> None:
    found = read_run(write_node_run(tmp_path / "run", nodes=40))
    # The last community has the same affiliation of every node, and a part of its own.
    z = np.concatenate([found.memberships[:, :3], np.full((40, 1), 0.5)], axis=1)
    parts = 0.9 * np.eye(3)[[0, 0, 1, 2]] + 0.1 / 3
    run = replace(found, memberships=z, activation=np.ones(4), assignment=parts)
    assert run.background.tolist() == [False, False, True]
    # A soft assignment gives it a little of what other communities explain.
    assert nn.members(torch.from_numpy(run.interaction))[:, 2].any()
    assert run.member.any(axis=0).tolist() == [True, True, False]
    *others, last = communities.community_rows(run)
    assert (last["nickname"], last["members"]) == (communities.BACKGROUND, 0)
    assert last["overlapping"] is None
    several = run.member[:, :2].all(axis=1).sum()
    assert [row["overlapping"] * row["members"] for row in others] == pytest.approx([several] * 2)
    mixed = replace(run, assignment=np.eye(3)[[0, 1, 2, 2]])
    assert mixed.background.tolist() == [False, False, False]


def test_rows_count_nodes_members_and_edges(tmp_path: Path) -> None:
    run = read_run(write_node_run(tmp_path / "run", nodes=40))
    rows = communities.community_rows(run)
    assert sum(row["nodes"] for row in rows) == 40
    assert [row["members"] for row in rows] == run.member.sum(axis=0).tolist()
    assert sum(row["edge_mass"] for row in rows) == pytest.approx(run.edge_index.shape[1] / 2)
    several = run.member.sum(axis=1) > 1
    for k, row in enumerate(rows):
        assert row["overlapping"] == pytest.approx(several[run.member[:, k]].mean())


def test_induced_edges_join_places_of_the_nodes() -> None:
    edges = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
    inside, own = payload.induced(edges, np.array([3, 0, 1]), 4)
    assert inside.tolist() == [True, False, False, True]
    assert own.tolist() == [[1, 0], [2, 1]]


def test_node_without_interactions_is_shared_evenly() -> None:
    np.testing.assert_allclose(payload.shares(np.zeros((1, 4))), 0.25)


def test_typical_features_tell_groups_apart() -> None:
    interaction = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    features = np.array([[1, 0, 5], [1, 0, 5], [0, 1, 5], [0, 1, 5]], dtype=float)
    first, second = communities.typical_features(features, interaction, ["a", "b", "c"])
    assert first == [("a", 1.0)]
    assert second == [("b", 1.0)]


def test_an_empty_community_has_no_typical_features() -> None:
    interaction = np.array([[3.0, 2.0, 1.0], [2.0, 3.0, 1.0]])
    features = np.array([[-1.0, 0.0], [-2.0, 5.0]])
    found = communities.typical_features(features, interaction, ["a", "b"])
    assert [[name for name, _ in row] for row in found] == [["a"], ["b"], []]
