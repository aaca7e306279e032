"""How good and how honest the predictions are."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Calibration(NamedTuple):
    """Confidence against accuracy, in equal bins of confidence."""

    edges: Floats
    confidence: Floats
    """Mean confidence in each bin; NaN where empty."""
    accuracy: Floats
    """Accuracy in each bin; NaN where empty."""
    size: Ints
    """Number of predictions in each bin."""
    ece: float
    """Expected calibration error: mean gap, weighted by count."""


def calibration(confidence: Floats, correct: Mask, bins: int = 15) -> Calibration:
    """Bin predictions by confidence."""
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, confidence, bins) / count
        accuracy = np.bincount(place, correct, bins) / count
    gap = np.nan_to_num(np.abs(mean - accuracy)) * count
    return Calibration(edges, mean, accuracy, count, float(gap.sum() / max(count.sum(), 1)))


def confusion(labels: Ints, prediction: Ints, num_classes: int) -> Ints:
    """Counts [true, predicted]; items of unknown label are left out."""
    known = labels >= 0
    flat = labels[known] * num_classes + prediction[known]
    return np.bincount(flat, minlength=num_classes**2).reshape(num_classes, num_classes)


def accuracy_interval(accuracy: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of an accuracy measured on ``count`` items."""
    if count == 0:
        return 0.0, 1.0
    centre = accuracy + z * z / (2 * count)
    spread = z * math.sqrt(accuracy * (1 - accuracy) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return (centre - spread) / scale, (centre + spread) / scale
