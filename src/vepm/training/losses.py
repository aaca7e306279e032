"""What a training step minimises: the negative bound, or the part of it a phase can move."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Gamma, Weibull, kl_divergence

from vepm.nn import VEPM, draw
from vepm.objective import (
    edge_log_likelihood,
    label_log_likelihood,
    partial_edge_log_likelihood,
    subsampled_edge_log_likelihood,
)
from vepm.training.batches import GraphBatch
from vepm.training.config import TrainingConfig
from vepm.training.legacy import SUBSAMPLE


def balanced(config: TrainingConfig) -> bool:
    """Whether the terms are averages."""
    return config.likelihood != "summed"


class Terms(NamedTuple):
    """A loss with the terms it is made of, each of them something to maximise but ``kl``."""

    loss: Tensor
    task: Tensor | None = None
    edges: Tensor | None = None
    kl: Tensor | None = None
    disagreement: Tensor | None = None
    """Spread of the noisy passes about their sharpened mean."""
    correct: Tensor | None = None
    """Number of labels predicted correctly."""

    def detached(self) -> "Terms":
        """The same numbers, without what their gradients were computed from."""
        return Terms._make(term if term is None else term.detach() for term in self)


class Held(NamedTuple):
    """Affiliations and the split of the edges, without gradient."""

    z: Tensor
    edge_weight: Tensor

    def tensors(self) -> Sequence[Tensor]:
        """Both."""
        return self


def pretraining_loss(model: VEPM, batch: GraphBatch, config: TrainingConfig) -> Terms:
    """Edges and divergence: everything that needs no labels."""
    posterior = model.encode(batch.x, batch.edges)
    z = draw(posterior, config.sampling)
    edges, kl = _unsupervised(model, batch, posterior, z, config)
    return Terms(config.kl_weight * kl - config.edge_term_weight * edges, edges=edges, kl=kl)


@torch.no_grad()
def hold(model: VEPM, batch: GraphBatch, config: TrainingConfig) -> Held:
    """Draw affiliations and split the edges for steps that leave the encoder alone."""
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
) -> Terms:
    """Labels alone, the communities held; the weight of consistency is the settings' by default."""
    passes = [
        model.classify(
            batch.x, held.z, held.edge_weight, batch.edges, batch.batch, batch.num_graphs
        ).logits
        for _ in range(config.passes)
    ]
    task, spread, correct = _labels(passes, batch, rows, config)
    task = task / batch.counted(rows).labels
    weight = config.consistency_weight if consistency_weight is None else consistency_weight
    return Terms(weight * spread - task, task=task, disagreement=spread, correct=correct)


def bound_loss(
    model: VEPM,
    batch: GraphBatch,
    rows: Tensor,
    config: TrainingConfig,
    consistency_weight: Tensor | None = None,
) -> Terms:
    """The whole negative bound, with gradients to every parameter."""
    posterior = model.encode(batch.x, batch.edges)
    draws = [draw(posterior, config.sampling) for _ in range(config.passes)]
    passes = [
        model.classify(
            batch.x,
            z,
            model.plan_split(z, batch.edges, batch.batch),
            batch.edges,
            batch.batch,
            batch.num_graphs,
        ).logits
        for z in draws
    ]
    task, spread, correct = _labels(passes, batch, rows, config)
    whole = batch.counted(rows)
    task = task / (whole.labels if balanced(config) else whole.nodes)
    edges, kl = _unsupervised(model, batch, posterior, draws[0], config)
    loss = config.kl_weight * kl - config.edge_term_weight * edges - task
    weight = config.consistency_weight if consistency_weight is None else consistency_weight
    return Terms(loss + weight * spread, task, edges, kl, spread, correct)


def _labels(
    passes: list[Tensor], batch: GraphBatch, rows: Tensor, config: TrainingConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-likelihood of all labels, disagreement of the passes, number correct."""
    scores = torch.stack([logits[rows] for logits in passes])
    y, present = batch.y[rows], batch.graphs_present
    task = torch.stack([label_log_likelihood(s, y) for s in scores]).mean(0)
    hits = scores.detach().mean(0).argmax(1) == y
    whole = batch.counted(rows)
    rows_in_all = whole.nodes if batch.batch is None else whole.graphs
    pull = (
        config.class_balance_weight * scores.size(-1) / whole.labels
        if config.class_balance_weight
        else None
    )
    spread = _disagreement(passes, config.sharpening, present, pull) / rows_in_all
    if present is not None:
        task, hits = torch.where(present[rows], task, 0), hits & present[rows]
    return task.sum(), spread, hits.sum()


def _total(values: Tensor, present: Tensor | None) -> Tensor:
    """Sum over the rows that are no padding, and over all columns."""
    if present is None:
        return values.sum()
    by_row = values if values.dim() == 1 else values.sum(1)
    return torch.where(present, by_row, 0).sum()


def _disagreement(
    passes: list[Tensor],
    sharpening: float,
    present: Tensor | None = None,
    pull: float | Tensor | None = None,
) -> Tensor:
    """Squared distance of each pass's probabilities to their sharpened mean, all rows summed."""
    if len(passes) == 1:
        return passes[0].new_zeros(())
    probabilities = torch.softmax(torch.stack(passes), dim=-1)
    common = probabilities.detach().mean(0)
    if pull is not None:
        common = common * _favour(common, present).pow(-pull)
    target = common.pow(1 / sharpening)
    target = target / target.sum(-1, keepdim=True)
    return _total((probabilities - target).square().sum(-1).mean(0), present)


def _favour(common: Tensor, present: Tensor | None) -> Tensor:
    """The part of each class in what all rows together say [classes], never nothing at all."""
    if present is not None:
        common = torch.where(present[:, None], common, 0)
    whole = common.sum(0)
    return (whole / whole.sum()).clamp_min(1e-6)


def _unsupervised(
    model: VEPM, batch: GraphBatch, posterior: Weibull, z: Tensor, config: TrainingConfig
) -> tuple[Tensor, Tensor]:
    """Edge likelihood and divergence: averages if balanced, else sums per node."""
    one = z.new_ones(())
    prior = Gamma(one, one, validate_args=False)
    kl = _total(kl_divergence(posterior, prior), batch.nodes_present)
    edges = _edges(model, batch, posterior, z, config)
    whole = batch.counted(batch.y)
    if balanced(config):
        return edges / whole.graphs, kl / (whole.nodes * z.size(1))
    return edges / whole.nodes, kl / whole.nodes


def _edges(
    model: VEPM, batch: GraphBatch, posterior: Weibull, z: Tensor, config: TrainingConfig
) -> Tensor:
    """Log-likelihood of the edges, summed over the graphs of the batch."""
    if batch.part is not None:
        return partial_edge_log_likelihood(
            z,
            model.activation,
            batch.edges,
            mean=posterior.mean,
            edge_weight=batch.part.edge_weight,
            total=batch.part.total(posterior.mean),
            num_nodes=batch.part.num_nodes,
            num_edges=batch.part.num_edges,
            balanced=balanced(config),
        )
    if config.likelihood == "subsampled":
        return subsampled_edge_log_likelihood(
            z,
            model.activation,
            batch.edges,
            batch.batch,
            num_nodes=SUBSAMPLE,
            balanced=balanced(config),
            num_graphs=batch.num_graphs,
        ).sum()
    edges = edge_log_likelihood(
        z,
        model.activation,
        batch.edges,
        batch.batch,
        balanced=balanced(config),
        mean=posterior.mean,
        num_graphs=batch.num_graphs,
    )
    return _total(edges, batch.graphs_present)
