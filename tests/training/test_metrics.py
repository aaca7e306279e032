"""Scores against what they are by hand and by a plain loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strategies import quick, seeds
from vepm.runs.metrics import (
    accuracy,
    agreement,
    alternatives_in_words,
    calibration_error,
)


def rows(*values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values)


def test_accuracy_by_hand() -> None:
    found = rows((0.9, 0.1), (0.4, 0.6), (0.3, 0.7), (0.8, 0.2))
    assert accuracy(found, torch.tensor([0, 1, 0, 1])) == 0.5
    assert accuracy(found, torch.tensor([0, 1, 1, 0])) == 1.0
    assert accuracy(found, torch.tensor([1, 0, 0, 1])) == 0.0


def test_calibration_by_hand() -> None:
    # Ten bins: 0.95 and 0.91 share one, in which 1 of 2 is right; 0.6 is alone and right.
    found = rows((0.95, 0.05), (0.91, 0.09), (0.4, 0.6))
    expected = (2 * abs(0.5 - 0.93) + 1 * abs(1 - 0.6)) / 3
    assert calibration_error(found, torch.tensor([0, 1, 1]), bins=10) == pytest.approx(expected)


def test_the_sure_and_right_are_calibrated_and_the_sure_and_wrong_are_not() -> None:
    sure = torch.eye(3)
    assert calibration_error(sure, torch.tensor([0, 1, 2])) == 0
    assert calibration_error(sure, torch.tensor([1, 2, 0])) == 1


def test_no_predictions_have_no_error() -> None:
    assert calibration_error(torch.empty(0, 3), torch.empty(0, dtype=torch.long)) == 0


def calibration_by_loop(probabilities: Tensor, y: Tensor, bins: int) -> float:
    members: dict[int, list[tuple[float, bool]]] = {}
    for row, label in zip(probabilities.double().tolist(), y.tolist(), strict=True):
        confidence = max(row)
        number = min(int(confidence * bins), bins - 1)
        members.setdefault(number, []).append((confidence, row.index(confidence) == label))
    error = 0.0
    for found in members.values():
        confidence = sum(c for c, _ in found) / len(found)
        share = sum(hit for _, hit in found) / len(found)
        error += len(found) / len(y) * abs(share - confidence)
    return error


@quick
@given(seeds, st.integers(1, 40), st.integers(2, 5), st.integers(1, 20))
def test_calibration_is_that_of_a_plain_loop(seed: int, n: int, classes: int, bins: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    found = torch.softmax(3 * torch.randn(n, classes, generator=generator), dim=1)
    y = torch.randint(classes, (n,), generator=generator)
    expected = calibration_by_loop(found, y, bins)
    assert calibration_error(found, y, bins) == pytest.approx(expected, abs=1e-9)
    assert 0 <= calibration_error(found, y, bins) <= 1


def test_agreement_knows_no_names() -> None:
    y = torch.tensor([0, 0, 1, 1, 2, 2])
    assert agreement(torch.tensor([2, 2, 0, 0, 1, 1]), y) == pytest.approx(1)
    assert agreement(torch.zeros(6, dtype=torch.long), y) == pytest.approx(0, abs=1e-12)


def test_agreement_by_hand() -> None:
    # Mutual information log 2, entropies log 2 and log 4; normalised by their mean.
    halves, quarters = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 2, 3])
    assert agreement(halves, quarters) == pytest.approx(2 / 3)
    assert agreement(quarters, halves) == pytest.approx(2 / 3)


def test_alternatives_are_named_in_order_with_their_accuracy() -> None:
    assert alternatives_in_words({"even": 0.5, "odd": 0.25}).endswith(
        "the best of an even split (50.0 %), odd (25.0 %)"
    )
