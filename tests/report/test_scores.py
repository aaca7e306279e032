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
