"""Who belongs where, by loops over nodes and communities."""

import torch
from hypothesis import given

from strategies import GraphBatch, batches, quick, uniform
from vepm.nn import interactions, members

ACTIVATION = torch.tensor([1.0, 0.5, 2.0])
SEGMENTS = ((0, 1), (2,))


@quick
@given(batches())
def test_interactions_sum_over_all_nodes_of_the_graph(joined: GraphBatch) -> None:
    z = uniform(0, joined.batch.numel(), 3).float()
    found = interactions(z, ACTIVATION, 2, joined.batch)
    for u in range(z.size(0)):
        for k, segment in enumerate(SEGMENTS):
            expected = sum(
                float(ACTIVATION[c] * z[u, c] * z[v, c])
                for v in range(z.size(0))
                if joined.batch[v] == joined.batch[u]
                for c in segment
            )
            torch.testing.assert_close(float(found[u, k]), expected, rtol=1e-4, atol=1e-5)


@quick
@given(batches())
def test_a_node_is_a_member_where_a_fifth_of_its_links_run_and_where_most_do(
    joined: GraphBatch,
) -> None:
    links = interactions(uniform(1, joined.batch.numel(), 6).float(), torch.ones(6), 6)
    found = members(links)
    for row, member in zip(links.tolist(), found.tolist(), strict=True):
        main = row.index(max(row))
        for k, rate in enumerate(row):
            clear = abs(rate - sum(row) / 5) > 1e-5 * sum(row)
            assert not clear or member[k] == (rate > sum(row) / 5 or k == main)
        assert member[main]


def test_links_spread_evenly_over_many_communities_make_one_member() -> None:
    found = members(torch.ones(3, 9))
    assert found.sum(1).tolist() == [1, 1, 1]
    assert members(torch.zeros(2, 4)).sum(1).tolist() == [1, 1]


def test_four_equal_shares_are_four_memberships() -> None:
    assert members(torch.ones(1, 4)).all()
    assert members(torch.tensor([[4.1, 4.1, 1.8]])).tolist() == [[True, True, False]]
