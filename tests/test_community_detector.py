"""Communities from edges alone: hard, soft and overlapping."""

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score
from torch_geometric.data import Data

from strategies import complete
from training.estimators import fitted, node_data
from training.toys import SMALL
from vepm import CommunityDetector
from vepm.data import Dataset, load, planted_graph
from vepm.errors import InputError
from vepm.estimators import unlabelled
from vepm.training import Config
from vepm.training.fitting import NONE


def detector(**options: Any) -> CommunityDetector:
    return CommunityDetector(config=SMALL["node"], device="cpu", **options)


def test_planted_communities_are_found() -> None:
    data = planted_graph(120, 3, overlap=0.02, average_degree=12, num_features=8, seed=1)
    config = SMALL["node"].replace(
        num_communities=3, num_metacommunities=3, encoder_channels=32, pretrain_epochs=150
    )
    found = CommunityDetector(config=config, device="cpu").fit(data)
    assert normalized_mutual_info_score(data.graphs[0].y, found.labels_) >= 0.8
    members = found.communities(data)
    np.testing.assert_array_equal(members.hard, members.soft.argmax(1))
    assert 1 <= members.overlapping.sum(1).mean() < 1.2


def test_memberships_by_hand() -> None:
    found, data = detector().fit(node_data()), node_data()
    z, activation = torch.tensor(found.memberships(data)), found.model_.activation.detach()
    members = found.communities(data)
    # A node's links with all others, through the communities of each half.
    links = (z * activation * z.sum(0)).view(60, 2, 2).sum(-1).numpy()
    np.testing.assert_allclose(members.soft, links / links.sum(1, keepdims=True), rtol=1e-5)
    clear = np.abs(members.soft - 0.2) > 1e-5
    expected = (members.soft > 0.2) | (members.soft == members.soft.max(1, keepdims=True))
    np.testing.assert_array_equal(members.overlapping[clear], expected[clear])
    np.testing.assert_array_equal(found.predict(data), members.hard)
    np.testing.assert_array_equal(found.labels_, members.hard)


def test_a_cover_holds_the_graph_s_own_nodes() -> None:
    club = nx.relabel_nodes(nx.karate_club_graph(), lambda i: ("member", i))
    found = CommunityDetector(num_communities=3, pretrain_epochs=30, device="cpu").fit(club)
    cover = found.cover(club)
    assert set.union(*cover.values()) <= set(club)
    table = found.communities(club).overlapping
    for k, node in itertools.product(range(3), range(34)):
        assert (("member", node) in cover.get(k, set())) == table[node, k]
    assert [len(nodes) for nodes in cover.values()] == [n for n in table.sum(0) if n]
    bound = CommunityDetector(graph=club, num_communities=3, pretrain_epochs=30, device="cpu")
    some = bound.fit(np.arange(34)).cover([5, 7])
    assert set.union(*some.values()) == {("member", 5), ("member", 7)}


def test_a_cover_names_nodes_by_id_or_index() -> None:
    assert set.union(*detector().fit(node_data()).cover(node_data()).values()) == set(range(60))
    club = load("KarateClub")
    named = replace(club, node_names=(tuple(f"n{i}" for i in range(34)),))
    assert set.union(*detector().fit(named).cover(named).values()) == set(named.item_names)


def test_a_complete_graph_and_a_single_node_have_finite_memberships() -> None:
    for shape in (complete(6), complete(1)):
        data = Data(x=torch.rand(shape.num_nodes, 3), edge_index=shape.edge_index)
        assert np.isfinite(detector().fit(data).communities(data).soft).all()


def test_detectors_never_look_at_labels() -> None:
    first = detector().fit(node_data())
    expected = first.memberships(node_data())
    for y in (torch.arange(60) % 7, torch.full((60,), -1), torch.full((60,), 4)):
        other = detector().fit(node_data(y=y))
        np.testing.assert_array_equal(other.memberships(node_data()), expected)
        np.testing.assert_array_equal(first.predict(node_data(y=y)), first.labels_)
    assert all(row["phase"] == "pretrain" for row in first.history_)
    assert not hasattr(first, "classes_")


def test_communities_behind_a_classifier_can_be_looked_at(tmp_path: Path) -> None:
    fitted("node").save(tmp_path)
    found = CommunityDetector.load(tmp_path, device="cpu")
    data = node_data(y=torch.arange(60) + 5)
    assert found.communities(data).soft.shape == (60, 2)


def test_a_saved_detector_finds_the_same(tmp_path: Path) -> None:
    first = detector(random_state=4).fit(node_data())
    first.save(tmp_path)
    second = CommunityDetector.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(second.predict(node_data()), first.labels_)
    np.testing.assert_array_equal(detector(random_state=4).fit_predict(node_data()), first.labels_)


def test_of_several_starts_the_best_is_trained() -> None:
    """A start that joins two of the planted communities is left."""
    data = planted_graph(300, 5, overlap=0.05, average_degree=8, seed=4)

    def losses(n_init: int) -> list[float]:
        model = CommunityDetector(
            num_communities=5, pretrain_epochs=150, n_init=n_init, random_state=1, device="cpu"
        ).fit(data)
        assert (len(model.history_), model.card_.seed) == (150, 1)
        return [row["loss"] for row in model.history_]

    first, best = losses(1), losses(5)
    assert first != best
    assert np.mean(best[5:25]) < np.mean(first[5:25])
    assert losses(5) == best


def test_starts_are_compared_by_their_last_losses_after_a_third_of_the_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    # The mean over the last twenty epochs is 5, over more or fewer it would be lower.
    first = [-1000.0] * 10 + [100.0] + [0.0] * 19

    def train(_: Dataset, config: Config, seed: int, **__: Any) -> SimpleNamespace:
        losses = [first, [4.0] * 30, [9.0] * 30][len(asked)]
        asked.append((config.training.pretrain_epochs, seed))
        return SimpleNamespace(history=[{"loss": loss} for loss in losses])

    monkeypatch.setattr("vepm.estimators.communities.fit", train)
    dataset = planted_graph(60, 2, seed=0)
    model = CommunityDetector(num_communities=2, n_init=3, pretrain_epochs=65)
    assert model._plan(dataset, 7, True) == (model.settings(), asked[1][1])
    assert [epochs for epochs, _ in asked] == [21] * 3
    assert asked[0][1] == 7
    assert len({seed for _, seed in asked}) == 3
    for alone in (model.set_params(n_init=1), model.set_params(n_init=3, pretrain_epochs=2)):
        assert alone._plan(dataset, 7, True)[1] == 7
    assert len(asked) == 3


def test_at_least_one_start_is_needed() -> None:
    with pytest.raises(InputError, match="n_init must be at least 1, got 0"):
        detector(n_init=0).fit(node_data())


def precision_and_recall(data: Dataset) -> tuple[float, float]:
    """Of memberships, against affiliations of more than a fifth, matched one to one."""
    found = CommunityDetector(num_communities=4, device="cpu").fit(data).communities(data)
    planted = data.graphs[0].memberships.numpy()
    share = planted / planted.sum(1, keepdims=True)
    truth = (share > 0.2) | (share == share.max(1, keepdims=True))
    _, order = linear_sum_assignment(-(share.T @ found.soft))
    right = float((found.overlapping[:, order] & truth).sum())
    return right / float(found.overlapping.sum()), right / float(truth.sum())


@pytest.mark.parametrize(("overlap", "least"), [(0.0, 0.95), (0.1, 0.9), (0.3, 0.75)])
def test_memberships_are_right_on_planted_graphs(overlap: float, least: float) -> None:
    """F1 over strengths of overlap; the pairs are printed with ``-s``."""
    pairs = [
        precision_and_recall(planted_graph(400, 4, overlap=overlap, average_degree=12, seed=seed))
        for seed in (1, 2)
    ]
    for precision, recall in pairs:
        print(f"overlap {overlap}: precision {precision:.2f}, recall {recall:.2f}")
        assert 2 * precision * recall / (precision + recall) >= least


def test_auto_finds_as_many_as_there_are() -> None:
    data = planted_graph(200, 3, overlap=0.02, average_degree=14, num_features=8, seed=1)
    found = CommunityDetector(num_communities="auto", n_init=1, device="cpu").fit(data)
    config = found.card_.config
    assert 3 <= config.model.num_communities <= 6
    assert config.model.num_metacommunities == config.model.num_communities
    assert config.training.shrinkage == 0
    assert normalized_mutual_info_score(data.graphs[0].y, found.labels_) >= 0.6
    count = config.model.num_communities
    again = CommunityDetector(num_communities=count, n_init=1, device="cpu").fit(data)
    assert np.array_equal(found.memberships(data), again.memberships(data))


def test_auto_resumes_to_what_an_uninterrupted_fit_finds(tmp_path: Path) -> None:
    data = unlabelled(planted_graph(60, 3, average_degree=8, seed=1))
    chosen: dict[str, Any] = {"num_communities": "auto", "n_init": 2, "pretrain_epochs": 60}
    whole = CommunityDetector(**chosen, device="cpu")
    whole.fit_split(data, NONE, NONE)
    calls = itertools.count()

    def interrupt(*_: object) -> None:
        # Sixty epochs find the number; the rest fits as many communities.
        if next(calls) == 80:
            raise KeyboardInterrupt

    halted = CommunityDetector(**chosen, device="cpu", progress=interrupt)
    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        halted.fit_split(data, NONE, NONE, checkpoint=checkpoint)
    assert checkpoint.exists()
    halted.fit_split(data, NONE, NONE, checkpoint=checkpoint)
    assert np.array_equal(whole.memberships(data), halted.memberships(data))


def test_auto_keeps_fewer_groups_and_a_background() -> None:
    data = planted_graph(60, 3, average_degree=8, seed=1)
    chosen: dict[str, Any] = {"n_init": 1, "pretrain_epochs": 60, "device": "cpu"}
    grouped = CommunityDetector(num_communities="auto", num_metacommunities=2, **chosen).fit(data)
    assert grouped.card_.config.model.num_metacommunities == 2
    beside: dict[str, Any] = {"num_communities": 2, "shrinkage": 0.001, "encoder": "background"}
    one = CommunityDetector(**beside, **chosen).fit(data).card_.config.model
    assert one.num_communities == 2
