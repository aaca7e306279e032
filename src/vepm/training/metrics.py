"""How good a prediction is, and how honest its probabilities are."""

import torch
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor

CALIBRATION_BINS = 15


def accuracy(probabilities: Tensor, y: Tensor) -> float:
    """Share of labels [n] that the most probable class of [n, classes] hits."""
    return float((probabilities.argmax(1) == y).double().mean())


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = CALIBRATION_BINS) -> float:
    """Expected calibration error: how far confidence is from accuracy, over equal-width bins.

    Example:
        >>> calibration_error(torch.tensor([[0.75, 0.25], [0.75, 0.25]]), torch.tensor([0, 1]))
        0.25
    """
    confidence, predicted = probabilities.double().max(1)
    hit = (predicted == y).double()
    bucket = (confidence * bins).long().clamp(max=bins - 1)
    gap = torch.zeros(bins, dtype=torch.double, device=hit.device)
    gap.index_add_(0, bucket, hit - confidence)
    return round(float(gap.abs().sum()) / max(y.numel(), 1), 12)


def agreement(communities: Tensor, y: Tensor) -> float:
    """Normalised mutual information of two groupings of the same nodes."""
    return float(normalized_mutual_info_score(y.cpu().numpy(), communities.cpu().numpy()))
