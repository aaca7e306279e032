"""Communities from edges alone: hard, soft and overlapping."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import normalized_mutual_info_score
from torch_geometric.data import Data

from strategies import complete
from training.estimators import fitted, node_data
from training.toys import SMALL
from vepm import CommunityDetector
from vepm.data import planted_graph


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
    assert members.overlapping[np.arange(120), members.hard].mean() > 0.9
    assert 1 <= members.overlapping.sum(1).mean() < 2


def test_overlapping_members_by_hand() -> None:
    found, data = detector().fit(node_data()), node_data()
    z, activation = torch.tensor(found.memberships(data)), found.model_.activation.detach()
    density = data.edge_index.size(1) / (60 * 59)
    threshold = -np.log(1 - density)
    members = found.communities(data)
    for k, segment in enumerate((slice(0, 2), slice(2, 4))):
        rate = (activation[segment] * z[:, segment] ** 2).sum(1).numpy()
        clear = np.abs(rate - threshold) > 1e-6
        np.testing.assert_array_equal(members.overlapping[clear, k], (rate >= threshold)[clear])
    # A node's links with all others, through the communities of each half.
    links = (z * activation * z.sum(0)).view(60, 2, 2).sum(-1).numpy()
    np.testing.assert_allclose(members.soft, links / links.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(members.soft.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(found.predict(data), members.hard)
    np.testing.assert_array_equal(found.labels_, members.hard)


def test_a_graph_without_edges_has_no_members() -> None:
    bare = node_data(edge_index=torch.empty(2, 0, dtype=torch.long))
    assert not detector().fit(bare).communities(bare).overlapping.any()
    assert not detector().fit(node_data()).communities(bare).overlapping.any()


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
