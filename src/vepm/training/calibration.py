"""Probabilities that mean what they say: how sharp they are is fitted on validation labels."""

import math

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from vepm.nn import VEPM
from vepm.scale.executor import Source
from vepm.scale.large import LargeGraph
from vepm.training.prediction import drawn_scores

LARGEST_LOGARITHM = 4.0


def calibrate(model: VEPM, source: Source, rows: Tensor, num_samples: int, seed: int) -> None:
    """Make the probabilities of a trained model as sharp as labels say they should be.

    Which class is most probable at the posterior mean stays the same. A graph that is read in
    chunks is left alone: it would have to be read as a whole once more.

    Args:
        model: The model; its ``sharpness`` is set.
        source: What it was trained on.
        rows: Numbers of labelled nodes or graphs it has not learned from.
        num_samples: Draws averaged by its predictions; 0 for the posterior mean.
        seed: Seed of the draws.
    """
    if isinstance(source, LargeGraph) or not rows.numel():
        return
    rows = rows.to(source.y.device)
    scores = drawn_scores(model, source, num_samples, seed)[:, rows]
    model.sharpness.fill_(best_sharpness(scores, source.y[rows]))


def best_sharpness(scores: Tensor, y: Tensor) -> float:
    """The factor of class scores of several draws [S, n, classes] that makes labels [n] likeliest.

    A normal prior of its logarithm keeps it near one where labels are few.

    Example:
        >>> best_sharpness(torch.tensor([[[1.0, 0.0]]]), torch.tensor([0])) < 2
        True
    """
    draws, own = scores.double().cpu(), y.cpu().expand(len(scores), -1)[..., None]

    def cost(logarithm: float) -> float:
        likely = torch.log_softmax(math.exp(logarithm) * draws, dim=-1)
        of_labels = likely.gather(2, own).squeeze(2).logsumexp(0)
        return float(logarithm**2 / 2 - of_labels.sum())

    bounds = (-LARGEST_LOGARITHM, LARGEST_LOGARITHM)
    found = minimize_scalar(cost, bounds=bounds, method="bounded")
    return math.exp(found.x)
