"""The evidence lower bound, term by term, and what terms are divided by."""

from typing import NamedTuple

import torch
from torch import Tensor

from vepm.kernels.shares import SMALLEST_SHARE, link_shares
from vepm.objective.edges import (
    edge_log_likelihood,
    partial_edge_log_likelihood,
    subsampled_edge_log_likelihood,
)

__all__ = [
    "Counts",
    "Terms",
    "edge_log_likelihood",
    "label_log_likelihood",
    "partial_edge_log_likelihood",
    "shrinking_penalty",
    "subsampled_edge_log_likelihood",
]


class Terms(NamedTuple):
    """A loss and the terms it is made of; all but ``kl`` and ``disagreement`` are maximised."""

    loss: Tensor
    task: Tensor | None = None
    """Log-likelihood of the labels."""
    edges: Tensor | None = None
    """Log-likelihood of the edges."""
    kl: Tensor | None = None
    """KL divergence of the posterior from the prior."""
    disagreement: Tensor | None = None
    """Squared distance of the noisy passes from their sharpened mean."""
    correct: Tensor | None = None
    """Number of labels predicted correctly."""

    def detached(self) -> "Terms":
        """The same values without their graph."""
        return Terms._make(term if term is None else term.detach() for term in self)


class Counts(NamedTuple):
    """What sums over a batch are divided by.

    Where a batch is one of several shares of a step, these are the counts of the whole step, so
    that the terms of the shares add up to those of the step.
    """

    nodes: float | Tensor
    labels: float | Tensor
    graphs: float | Tensor = 1.0


def label_log_likelihood(logits: Tensor, y: Tensor) -> Tensor:
    """Log-likelihood of each label [n] under class scores [n, classes]."""
    return -torch.nn.functional.cross_entropy(logits, y, reduction="none")


def shrinking_penalty(mean: Tensor, activation: Tensor) -> Tensor:
    r"""What a truncated gamma process has against communities that links can do without.

    .. math:: \sum_c \log(1 + \pi_c / \varepsilon)

    The process gives each of C communities an activation from Gamma(:math:`\gamma_0 / C`, c). As C
    grows, its log-density becomes minus the logarithm of the activation: an empty community is
    always better than a weak one. Activations are measured as shares :math:`\pi_c` of the expected
    links, which do not depend on the scale of the affiliations, and shares far below
    :math:`\varepsilon` count as zero.

    Args:
        mean: Posterior means of the affiliations [N, C].
        activation: Community activations [C], or interactions between them [C, C].
    """
    return torch.log1p(link_shares(mean, activation) / SMALLEST_SHARE).sum()
