r"""What each kind of step minimises, from a model and a batch.

.. math:: \mathcal{L} = \log p_\theta(y \mid X, A, Z) + \log p(A \mid Z)
          - \mathrm{KL}(q_\phi(Z \mid A, X) \,\Vert\, p(Z))

Each term has a weight; stochastic passes may add a penalty for disagreeing.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Gamma, Weibull, kl_divergence
from torch.nn.functional import cross_entropy

from vepm.kernels.dropout import dropout
from vepm.nn import VEPM, Adjacency, draw
from vepm.objective import Terms, masked, shrinking_penalty
from vepm.scale.batches import GraphBatch
from vepm.training.config import TrainingConfig

VISIBLE = 0.5  # share of edges and features that the encoder sees where the likelihood is masked
SHARPENING = 0.5  # temperature of the mean prediction that passes should agree on


class Held(NamedTuple):
    """Affiliations and the split of the edges, without gradient."""

    z: Tensor
    edge_weight: Tensor


def pretraining_loss(model: VEPM, batch: GraphBatch, config: TrainingConfig) -> Terms:
    """Edges and KL divergence: everything that needs no labels."""
    x, edges = batch.x, batch.edges
    if config.likelihood == "masked":
        x, edges = dropout(x, 1 - VISIBLE, training=True), _some_of(edges)
    posterior = model.encode(x, edges)
    return _unsupervised(model, posterior, draw(posterior, config.sampling), batch, config)


def _some_of(edges: Adjacency) -> Adjacency:
    """A random part of the edges, each in both directions."""
    low, high = edges.edge_index.sort(dim=0).values
    pairs, pair = (low * edges.num_nodes + high).unique(return_inverse=True)
    kept = (torch.rand(pairs.numel(), device=pairs.device) < VISIBLE)[pair]
    weight, arcs = (None if found is None else found[kept] for found in (edges.weight, edges.arcs))
    return Adjacency(edges.edge_index[:, kept], edges.num_nodes, weight=weight, arcs=arcs)


@torch.no_grad()
def hold(model: VEPM, batch: GraphBatch, config: TrainingConfig) -> Held:
    """Sample affiliations and split the edges for steps that leave the encoder unchanged."""
    was_training = model.encoder.training
    model.encoder.eval()
    z = draw(model.encode(batch.x, batch.edges), config.sampling)
    model.encoder.train(was_training)
    return Held(z, model.split_edges(z, batch.edges, batch.batch))


def predictor_loss(
    model: VEPM,
    batch: GraphBatch,
    rows: Tensor,
    held: Held,
    config: TrainingConfig,
    consistency_weight: Tensor | None = None,
    class_weights: Tensor | None = None,
) -> Terms:
    """Loss of the labels of the given rows, with the communities held fixed.

    The weight of the disagreement is that of the epoch, by default that of the settings. Without
    class weights all labels count equally.
    """
    b, split = batch, held.edge_weight
    if model.learns_grouping:
        # Communities are held, but how labels group them may still be learned.
        split = model.split_edges(held.z, b.edges, b.batch)
    passes = [
        model.classify(b.x, held.z, split, b.edges, b.batch, b.num_graphs).logits
        for _ in range(config.passes)
    ]
    task, spread, correct = _supervised(passes, rows, batch, config, class_weights)
    weight = config.consistency_weight if consistency_weight is None else consistency_weight
    task = task / batch.count(rows).labels
    return Terms(weight * spread - task, task=task, disagreement=spread, correct=correct)


def bound_loss(
    model: VEPM,
    batch: GraphBatch,
    rows: Tensor,
    config: TrainingConfig,
    consistency_weight: Tensor | None = None,
    class_weights: Tensor | None = None,
) -> Terms:
    """The whole negative bound, with gradients to every parameter; see :func:`predictor_loss`."""
    b, posterior = batch, model.encode(batch.x, batch.edges)
    draws = [draw(posterior, config.sampling) for _ in range(config.passes)]
    passes = []
    for z in draws:
        split = model.split_edges(z, b.edges, b.batch)
        passes.append(model.classify(b.x, z, split, b.edges, b.batch, b.num_graphs).logits)
    loss, _, edges, kl, *_ = _unsupervised(model, posterior, draws[0], batch, config)
    task, spread, correct = _supervised(passes, rows, batch, config, class_weights)
    counts = batch.count(rows)
    task = task / (counts.nodes if config.likelihood == "summed" else counts.labels)
    weight = config.consistency_weight if consistency_weight is None else consistency_weight
    return Terms(loss - task + weight * spread, task, edges, kl, spread, correct)


def _unsupervised(
    model: VEPM, posterior: Weibull, z: Tensor, batch: GraphBatch, config: TrainingConfig
) -> Terms:
    """Edges and KL divergence, given the posterior of the affiliations and a draw of it [N, C]."""
    # An exponential prior; plain numbers would not be on the samples' device.
    one, activation = z.new_ones(()), model.interactions
    divergence = kl_divergence(posterior, Gamma(one, one, validate_args=False))
    kl, counts = masked(divergence, batch.node_mask).sum(), batch.count(batch.y)
    given = (z, posterior.mean, activation, config.likelihood, model.directed)
    edges = batch.edge_log_likelihood(*given)
    if config.likelihood == "summed":
        edges, kl = edges / counts.nodes, kl / counts.nodes
    else:
        edges, kl = edges / counts.graphs, kl / (counts.nodes * z.size(1))
    loss = config.kl_weight * kl - config.edge_term_weight * edges
    if config.shrinkage:
        mean = masked(posterior.mean, batch.node_mask)
        loss = loss + config.shrinkage * shrinking_penalty(mean, activation)
    return Terms(loss, edges=edges, kl=kl)


def _supervised(
    passes: list[Tensor],
    rows: Tensor,
    batch: GraphBatch,
    config: TrainingConfig,
    class_weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-likelihood of all labels, disagreement of the passes, number of correct labels."""
    scores = torch.stack([logits[rows] for logits in passes])
    y, counts, balance = batch.y[rows], batch.count(rows), config.class_balance_weight
    task = -torch.stack([cross_entropy(s, y, reduction="none") for s in scores]).mean(0)
    if class_weights is not None:
        task = task * class_weights[y]
    hits = scores.detach().mean(0).argmax(1) == y
    power = balance * scores.size(-1) / counts.labels if balance else None
    outputs = counts.nodes if batch.batch is None else counts.graphs
    spread = disagreement(passes, batch, power) / outputs
    kept, right = (masked(values, batch.graph_mask).sum() for values in (task, hits))
    return kept, spread, right


def disagreement(
    passes: list[Tensor], batch: GraphBatch, power: float | Tensor | None = None
) -> Tensor:
    """Squared distance of each pass to their sharpened mean, corrected for frequent classes."""
    if len(passes) == 1:
        return passes[0].new_zeros(())
    probabilities = torch.softmax(torch.stack(passes), dim=-1)
    common = probabilities.detach().mean(0)
    if power is not None:
        predicted = masked(common, batch.graph_mask).sum(0)
        frequency = (predicted / predicted.sum()).clamp_min(1e-6)
        common = common * frequency.pow(-power)
    target = common.pow(1 / SHARPENING)
    target = target / target.sum(-1, keepdim=True)
    distance = (probabilities - target).square().sum(-1).mean(0)
    return masked(distance, batch.graph_mask).sum()
