import numpy as np
import pytest

from vepm.report import communities


@pytest.fixture
def memberships() -> communities.Floats:
    return np.random.default_rng(0).gamma(0.5, 1.0, size=(30, 5))


def test_interactions_equal_the_double_loop(memberships: communities.Floats) -> None:
    activation = np.linspace(0.5, 2.0, 5)
    found = communities.interactions(memberships, activation, 2)
    for k, segment in enumerate((slice(0, 3), slice(3, 5))):
        z = memberships[:, segment]
        expected = (z @ np.diag(activation[segment]) @ z.T).sum(axis=1)
        np.testing.assert_allclose(found[:, k], expected)


def test_interactions_stay_within_a_graph(memberships: communities.Floats) -> None:
    batch = np.repeat([0, 1], [12, 18])
    activation = np.ones(5)
    together = communities.interactions(memberships, activation, 5, batch)
    apart = [communities.interactions(memberships[batch == g], activation, 5) for g in (0, 1)]
    np.testing.assert_allclose(together, np.vstack(apart))


def test_order_is_by_bucket_then_strength() -> None:
    interaction = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 3.0], [0.5, 2.5], [4.0, 0.0]])
    order, bucket = communities.bucket_order(interaction)
    assert bucket.tolist() == [0, 1, 1, 1, 0]
    assert order.tolist() == [4, 0, 2, 3, 1]


def test_a_community_belongs_where_most_of_it_goes() -> None:
    assert communities.part_of_each(5, 2).tolist() == [0, 0, 0, 1, 1]
    learned = np.array([[0.2, 0.8], [0.9, 0.1], [0.4, 0.6]])
    assert communities.part_of_each(3, learned).tolist() == [1, 0, 1]


def test_table_of_two_triangles_that_share_a_node() -> None:
    interaction = np.array([[1, 0], [1, 0], [1, 1], [0, 1], [0, 1]], dtype=float)
    pairs = np.array([[0, 0, 1, 2, 2, 3], [1, 2, 2, 3, 4, 4]])
    edges = np.hstack([pairs, pairs[::-1]])
    share = np.repeat([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3, 1, axis=0)
    member = interaction > 0
    table = communities.community_table(interaction, member, edges, np.vstack([share, share]))
    assert table.nodes.tolist() == [3, 2]
    assert table.members.tolist() == [3, 3]
    assert table.edge_mass.tolist() == [3, 3]
    assert table.density.tolist() == [1, 1]
    np.testing.assert_allclose(table.overlapping, 1 / 3)
    np.testing.assert_allclose(table.jaccard, [[1, 0.2], [0.2, 1]])


def test_empty_community_has_no_density() -> None:
    interaction = np.array([[1.0, 0.0], [1.0, 0.0]])
    no_edges = np.zeros((2, 0), dtype=np.int64)
    member = interaction > 0
    table = communities.community_table(interaction, member, no_edges, np.zeros((0, 2)))
    assert np.isnan(table.density[1])
    assert np.isnan(table.overlapping[1])


def test_node_without_interactions_is_shared_evenly() -> None:
    np.testing.assert_allclose(communities.shares(np.zeros((1, 4))), 0.25)


def test_typical_features_tell_groups_apart() -> None:
    interaction = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    features = np.array([[1, 0, 5], [1, 0, 5], [0, 1, 5], [0, 1, 5]], dtype=float)
    first, second = communities.typical_features(features, interaction)
    assert first == [(0, 1.0)]
    assert second == [(1, 1.0)]
