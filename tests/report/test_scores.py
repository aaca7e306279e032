import math

import numpy as np
import pytest

from vepm.report import scores


def test_calibration_of_a_known_gap() -> None:
    result = scores.calibration(np.array([0.9, 0.9, 0.6, 0.6]), np.array([1, 0, 1, 0], bool), 10)
    assert result.ece == pytest.approx(0.5 * 0.4 + 0.5 * 0.1)
    assert result.size.sum() == 4


def test_certainty_falls_in_the_last_bin_and_zero_in_the_first() -> None:
    result = scores.calibration(np.array([0.0, 1.0]), np.array([False, True]), 4)
    assert result.size.tolist() == [1, 0, 0, 1]
    assert result.ece == 0


def test_confusion_leaves_unknown_labels_out() -> None:
    matrix = scores.confusion(np.array([0, 1, 1, -1]), np.array([0, 0, 1, 1]), 2)
    assert matrix.tolist() == [[1, 0], [1, 1]]


def test_interval_holds_the_accuracy() -> None:
    low, high = scores.accuracy_interval(0.8, 1000)
    assert low < 0.8 < high
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(0.16 / 1000), rel=0.01)
    assert scores.accuracy_interval(0.0, 0) == (0.0, 1.0)


def test_probes_find_the_community_that_knows() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=200)
    embeddings = rng.normal(size=(200, 2, 3))
    embeddings[:, 1] += 4 * labels[:, None]
    train = np.arange(200) < 100
    blind, knowing = scores.community_probes(embeddings, labels, train, ~train, 3)
    assert knowing.accuracy > 0.95
    assert blind.accuracy < 0.7
    assert not knowing.confusion[:, 2].any()
    assert knowing.confusion.sum() == 100


def test_no_probe_from_a_single_class() -> None:
    everything = np.ones(5, dtype=bool)
    with pytest.raises(ValueError, match="fewer than two classes"):
        scores.community_probes(np.ones((5, 2, 2)), np.zeros(5, int), everything, everything, 2)


def test_pool_is_the_mean_of_each_graph() -> None:
    pooled = scores.pool(np.array([[1.0], [3.0], [5.0]]), np.array([0, 0, 2]), 3)
    assert pooled.tolist() == [[2], [0], [5]]
