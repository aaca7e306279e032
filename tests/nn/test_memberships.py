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
def test_a_node_is_a_member_where_it_links_like_one(joined: GraphBatch) -> None:
    z = uniform(1, joined.batch.numel(), 6).float()
    links = interactions(z, torch.ones(6), 6, joined.batch)
    found = members(links, joined.batch)
    for graph in joined.batch.unique():
        nodes = (joined.batch == graph).nonzero().squeeze(1).tolist()
        typical = []
        for k in range(6):
            rates = [float(links[u, k]) for u in nodes]
            squares = sum(rate**2 for rate in rates)
            typical.append((sum(rate**4 for rate in rates) / squares) ** 0.5 if squares else 0.0)
        for u in nodes:
            main = int(links[u].argmax())
            assert found[u, main] or not found[u].any()
            for k, rate in enumerate(links[u].tolist()):
                if k == main:
                    continue
                least, used = 0.3 * typical[k], typical[k] - 0.01 * max(typical)
                clear = abs(rate - least) > 1e-5 * typical[k] and abs(used) > 1e-5 * max(typical)
                assert not clear or found[u, k] == (rate > least and used > 0)


def test_one_graph_is_a_batch_of_one() -> None:
    links = torch.tensor([[6.0, 3.0, 1.0], [1.0, 1.0, 9.0], [8.0, 0.1, 0.2]])
    expected = [[True, True, False], [False, True, True], [True, False, False]]
    assert members(links).tolist() == expected
    assert members(links, torch.zeros(3, dtype=torch.long)).tolist() == expected
    # Beside a much larger graph, the small one keeps its members.
    beside = members(torch.cat([links, 1000 * links]), torch.tensor([0, 0, 0, 1, 1, 1]))
    assert beside.tolist() == [*expected, *expected]


def test_a_node_of_few_links_is_in_no_community() -> None:
    assert not members(torch.zeros(2, 4)).any()
    found = members(torch.tensor([[5.0, 5.0], [0.2, 0.1]]))
    assert found.tolist() == [[True, True], [False, False]]


def test_a_member_of_any_community_is_a_member_of_its_main_one() -> None:
    found = members(torch.tensor([[9.0, 0.0], [9.0, 0.0], [1.0, 0.9]]))
    assert found.tolist() == [[True, False], [True, False], [True, True]]


def test_an_unused_community_has_no_members() -> None:
    """Everyone links alike in it, but hardly at all."""
    links = torch.tensor([[5.0, 1.0, 0.001], [4.0, 6.0, 0.001]])
    assert members(links)[:, 2].tolist() == [False, False]
    assert members(100 * links.log1p())[:, :2].all()


def test_large_rates_do_not_overflow() -> None:
    assert members(torch.tensor([[1e15, 1e15], [1e15, 1.0]])).tolist() == [
        [True, True],
        [True, False],
    ]
