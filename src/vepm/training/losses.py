"""The losses of a step: what the model computes for it, and the terms of the objective."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Weibull

from vepm.kernels.features import dropout
from vepm.nn import VEPM, Adjacency, draw
from vepm.objective import Terms, bound_terms, predictor_terms, pretraining_terms
from vepm.scale.batches import GraphBatch
from vepm.training.config import TrainingConfig

VISIBLE = 0.5
"""Share of the edges and features that the encoder sees where the likelihood is masked."""


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
    z = draw(posterior, config.sampling)
    return _unsupervised_terms(model, posterior, z, batch, config)


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
    """Labels alone, with the communities held.

    Args:
        model: The model.
        batch: The graphs.
        rows: Indices of the labelled nodes or graphs.
        held: Affiliations and the split of the edges.
        config: The settings.
        consistency_weight: Weight of the disagreement in this epoch, by default the settings'.
        class_weights: Weight of the labels of each class; None weighs all alike.
    """
    b = batch
    # Communities are held, but how labels group them may still be learned.
    split = held.edge_weight
    if model.learns_grouping:
        split = model.split_edges(held.z, b.edges, b.batch)
    passes = [
        model.classify(b.x, held.z, split, b.edges, b.batch, b.num_graphs).logits
        for _ in range(config.passes)
    ]
    weights = _label_weights(config, consistency_weight, class_weights)
    return predictor_terms(passes, rows, batch, **weights)


def _label_weights(
    config: TrainingConfig, consistency_weight: Tensor | None, class_weights: Tensor | None
) -> dict[str, Any]:
    weight = config.consistency_weight if consistency_weight is None else consistency_weight
    return {
        "consistency_weight": weight,
        "sharpening": config.sharpening,
        "class_balance_weight": config.class_balance_weight,
        "class_weights": class_weights,
    }


def bound_loss(
    model: VEPM,
    batch: GraphBatch,
    rows: Tensor,
    config: TrainingConfig,
    consistency_weight: Tensor | None = None,
    class_weights: Tensor | None = None,
) -> Terms:
    """The whole negative bound, with gradients to every parameter; see :func:`predictor_loss`."""
    b = batch
    posterior = model.encode(b.x, b.edges)
    draws = [draw(posterior, config.sampling) for _ in range(config.passes)]
    splits = (model.split_edges(z, b.edges, b.batch) for z in draws)
    passes = [
        model.classify(b.x, z, split, b.edges, b.batch, b.num_graphs).logits
        for z, split in zip(draws, splits, strict=True)
    ]
    unsupervised = _unsupervised_terms(model, posterior, draws[0], batch, config)
    weights = _label_weights(config, consistency_weight, class_weights)
    return bound_terms(unsupervised, passes, rows, batch, likelihood=config.likelihood, **weights)


def _unsupervised_terms(
    model: VEPM, posterior: Weibull, z: Tensor, batch: GraphBatch, config: TrainingConfig
) -> Terms:
    likelihood = "balanced" if config.likelihood == "masked" else config.likelihood
    return pretraining_terms(
        posterior,
        z,
        model.interactions,
        batch,
        likelihood=likelihood,
        edge_term_weight=config.edge_term_weight,
        kl_weight=config.kl_weight,
        directed=model.directed,
        shrinkage=config.shrinkage,
    )
