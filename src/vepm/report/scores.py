"""How good and how honest the predictions are."""

import math
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

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


@dataclass(frozen=True)
class Probe:
    """A logistic regression on what one metacommunity alone knows."""

    confusion: Ints
    """Its confusion matrix on the test items."""
    accuracy: float
    """Its accuracy on the test items; NaN without any."""


def community_probes(
    embeddings: Floats, labels: Ints, train: Mask, test: Mask, num_classes: int
) -> list[Probe]:
    """Fit one logistic regression per metacommunity on the training items.

    Args:
        embeddings: What each metacommunity knows of each item [items, K, D].
        labels: True classes, -1 where unknown.
        train: Items to fit on.
        test: Items to measure on.
        num_classes: Number of classes.

    Returns:
        One probe per metacommunity.

    Raises:
        ValueError: The training items have fewer than two classes.
    """
    fit = train & (labels >= 0)
    if len(np.unique(labels[fit])) < 2:
        raise ValueError("the training labels hold fewer than two classes")
    return [
        _probe(embeddings[:, k], labels, fit, test & (labels >= 0), num_classes)
        for k in range(embeddings.shape[1])
    ]


def pool(values: Floats, batch: Ints, num_graphs: int) -> Floats:
    """Mean of node values over the nodes of each graph."""
    sums = np.zeros((num_graphs, *values.shape[1:]))
    np.add.at(sums, batch, values)
    counts = np.maximum(np.bincount(batch, minlength=num_graphs), 1)
    mean: Floats = sums / counts.reshape(-1, *[1] * (values.ndim - 1))
    return mean


def _probe(values: Floats, labels: Ints, fit: Mask, test: Mask, num_classes: int) -> Probe:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(values[fit], labels[fit])
    if not test.any():
        return Probe(np.zeros((num_classes, num_classes), dtype=np.int64), math.nan)
    guess = model.predict(values[test])
    right = guess == labels[test]
    return Probe(confusion(labels[test], guess, num_classes), float(right.mean()))
