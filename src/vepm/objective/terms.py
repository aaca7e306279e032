r"""What each phase of training minimises, from a model's outputs and a batch.

.. math:: \mathcal{L} = \log p_\theta(y \mid X, A, Z) + \log p(A \mid Z)
          - \mathrm{KL}(q_\phi(Z \mid A, X) \,\Vert\, p(Z))

Each term has a weight; noisy passes may add a penalty for disagreeing.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.distributions import Gamma, Weibull, kl_divergence

from vepm.kernels.shares import SMALLEST_SHARE, link_shares


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


class Batch(Protocol):
    """What the terms need to know of a batch."""

    @property
    def y(self) -> Tensor:
        """Labels of the nodes [N] or graphs [G]."""

    @property
    def batch(self) -> Tensor | None:
        """Graph of each node [N]; None if the nodes of one graph are labelled."""

    def count(self, rows: Tensor) -> Counts:
        """What to divide sums by, given the labelled rows."""

    def keep_nodes(self, values: Tensor) -> Tensor:
        """Values of nodes [N, ...], zero for padding."""

    def keep_outputs(self, values: Tensor) -> Tensor:
        """Values of what is labelled [n, ...], zero for padding."""

    def edge_log_likelihood(
        self, z: Tensor, mean: Tensor, activation: Tensor, likelihood: str, directed: bool
    ) -> Tensor:
        """Log-likelihood of the edges, summed over the graphs."""


def label_log_likelihood(logits: Tensor, y: Tensor) -> Tensor:
    """Log-likelihood of each label [n] under class scores [n, classes]."""
    return -torch.nn.functional.cross_entropy(logits, y, reduction="none")


def pretraining_terms(
    posterior: Weibull,
    z: Tensor,
    activation: Tensor,
    batch: Batch,
    *,
    likelihood: str,
    edge_term_weight: float,
    kl_weight: float,
    directed: bool = False,
    shrinkage: float = 0.0,
) -> Terms:
    """Edges and KL divergence: everything that needs no labels.

    Args:
        posterior: Weibull posterior of Z [N, C].
        z: A sample of it [N, C].
        activation: Community activations [C], or interactions between them [C, C].
        batch: The edges.
        likelihood: ``"balanced"`` for averages, ``"summed"`` for sums per node, ``"subsampled"``
            for averages with the paper's estimate of the edges.
        edge_term_weight: Weight of the edges.
        kl_weight: Weight of the KL divergence.
        directed: Whether links have directions.
        shrinkage: Weight of the prior that empties communities; see :func:`shrinking_penalty`.
    """
    # An exponential prior; a number would not live on the samples' device.
    one = z.new_ones(())
    kl = batch.keep_nodes(kl_divergence(posterior, Gamma(one, one, validate_args=False))).sum()
    edges = batch.edge_log_likelihood(z, posterior.mean, activation, likelihood, directed)
    counts = batch.count(batch.y)
    if likelihood == "summed":
        edges, kl = edges / counts.nodes, kl / counts.nodes
    else:
        edges, kl = edges / counts.graphs, kl / (counts.nodes * z.size(1))
    loss = kl_weight * kl - edge_term_weight * edges
    if shrinkage:
        mean = batch.keep_nodes(posterior.mean)
        loss = loss + shrinkage * shrinking_penalty(mean, activation)
    return Terms(loss, edges=edges, kl=kl)


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


def predictor_terms(
    passes: list[Tensor],
    rows: Tensor,
    batch: Batch,
    *,
    consistency_weight: float | Tensor,
    sharpening: float,
    class_balance_weight: float,
    class_weights: Tensor | None = None,
) -> Terms:
    """Labels alone, with the communities held.

    Args:
        passes: Class scores of each noisy pass.
        rows: Indices of the labelled nodes or graphs.
        batch: The labels.
        consistency_weight: Weight of the passes' disagreement.
        sharpening: Temperature of the mean that they should agree on.
        class_balance_weight: How strongly that mean is corrected for over-predicted classes.
        class_weights: Weight of the labels of each class; None weighs all alike.
    """
    task, spread, correct = _label_terms(
        passes, rows, batch, sharpening, class_balance_weight, class_weights
    )
    task = task / batch.count(rows).labels
    loss = consistency_weight * spread - task
    return Terms(loss, task=task, disagreement=spread, correct=correct)


def bound_terms(
    unsupervised: Terms,
    passes: list[Tensor],
    rows: Tensor,
    batch: Batch,
    *,
    likelihood: str,
    consistency_weight: float | Tensor,
    sharpening: float,
    class_balance_weight: float,
    class_weights: Tensor | None = None,
) -> Terms:
    """The whole bound: the labels on top of :func:`pretraining_terms`.

    The other arguments are those of :func:`pretraining_terms` and :func:`predictor_terms`.
    """
    task, spread, correct = _label_terms(
        passes, rows, batch, sharpening, class_balance_weight, class_weights
    )
    counts = batch.count(rows)
    task = task / (counts.nodes if likelihood == "summed" else counts.labels)
    loss = unsupervised.loss - task + consistency_weight * spread
    return Terms(loss, task, unsupervised.edges, unsupervised.kl, spread, correct)


def _label_terms(
    passes: list[Tensor],
    rows: Tensor,
    batch: Batch,
    sharpening: float,
    class_balance_weight: float,
    class_weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-likelihood of all labels, disagreement of the passes, number of correct labels."""
    scores = torch.stack([logits[rows] for logits in passes])
    y, counts = batch.y[rows], batch.count(rows)
    task = torch.stack([label_log_likelihood(s, y) for s in scores]).mean(0)
    if class_weights is not None:
        task = task * class_weights[y]
    hits = scores.detach().mean(0).argmax(1) == y
    power = class_balance_weight * scores.size(-1) / counts.labels if class_balance_weight else None
    outputs = counts.nodes if batch.batch is None else counts.graphs
    spread = disagreement(passes, batch, sharpening, power) / outputs
    return batch.keep_outputs(task).sum(), spread, batch.keep_outputs(hits).sum()


def disagreement(
    passes: list[Tensor], batch: Batch, sharpening: float, power: float | Tensor | None = None
) -> Tensor:
    """Squared distance of each pass's probabilities to their sharpened mean, summed over rows.

    Args:
        passes: Class scores of each pass.
        batch: Says which rows are padding.
        sharpening: Temperature of the mean; below one sharpens it.
        power: Divide the mean by this power of the predicted class frequencies.
    """
    if len(passes) == 1:
        return passes[0].new_zeros(())
    probabilities = torch.softmax(torch.stack(passes), dim=-1)
    common = probabilities.detach().mean(0)
    if power is not None:
        predicted = batch.keep_outputs(common).sum(0)
        frequency = (predicted / predicted.sum()).clamp_min(1e-6)
        common = common * frequency.pow(-power)
    target = common.pow(1 / sharpening)
    target = target / target.sum(-1, keepdim=True)
    return batch.keep_outputs((probabilities - target).square().sum(-1).mean(0)).sum()
