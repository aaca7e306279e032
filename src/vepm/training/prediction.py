"""Predictions of a trained model, batch by batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from vepm.nn import VEPM
from vepm.training.batches import GraphBatch, GraphStore


def pieces(source: GraphBatch | GraphStore) -> list[GraphBatch]:
    """The source as it fits through a model: a graph at once, graphs some at a time."""
    return [source] if isinstance(source, GraphBatch) else source.pieces


@contextmanager
def seeded(model: VEPM, seed: int = 0) -> Iterator[None]:
    """Random numbers of our own, the caller's left as they were.

    Even a prediction at the posterior mean draws some where the features are random.
    """
    devices = [model.activation.device] if model.activation.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


class Explanation(NamedTuple):
    """Communities and embeddings behind a prediction, at the posterior mean."""

    memberships: Tensor
    """Mean affiliation of each node to each community [N, C]."""
    edge_index: Tensor
    """Edges [2, E], nodes numbered through all graphs."""
    edge_weight: Tensor
    """Share of each edge in each metacommunity [E, K]."""
    community_embeddings: Tensor
    """What each metacommunity knows of each node [N, K, H/K]."""
    embeddings: Tensor
    """Composed representation of each node or graph."""


@torch.no_grad()
def explain(model: VEPM, source: GraphBatch | GraphStore) -> Explanation:
    """Everything a user may want to look at."""
    model.eval()
    parts, edges, offset = [], [], 0
    with seeded(model):
        for b in pieces(source):
            parts.append(model(b.x, b.edges, b.batch, b.num_graphs))
            edges.append(b.edges.edge_index + offset)
            offset += b.x.size(0)
    return Explanation(
        torch.cat([out.z for out in parts]),
        torch.cat(edges, dim=1),
        torch.cat([out.edge_weight for out in parts]),
        torch.cat([out.community_embeddings for out in parts]),
        torch.cat([out.embeddings for out in parts]),
    )


@torch.no_grad()
def scores(model: VEPM, source: GraphBatch | GraphStore) -> Tensor:
    """Class scores [n, classes] of every node or graph at the posterior mean."""
    model.eval()
    with seeded(model):
        parts = [model(b.x, b.edges, b.batch, b.num_graphs).logits for b in pieces(source)]
    return torch.cat(parts)


@torch.no_grad()
def probabilities(
    model: VEPM, source: GraphBatch | GraphStore, num_samples: int = 0, seed: int = 0
) -> Tensor:
    r"""Class probabilities [n, classes], averaged over draws of the affiliations.

    .. math:: \hat p(y) = \frac{1}{S} \sum_{s=1}^S p_\theta(y \mid X, A, Z^{(s)})

    Args:
        model: The model.
        source: A graph, or a store of graphs.
        num_samples: Number of draws S; 0 takes the posterior mean instead.
        seed: Seed of the draws.
    """
    if num_samples == 0:
        return torch.softmax(scores(model, source), dim=1)
    model.eval()
    with seeded(model, seed):
        return torch.cat([_sampled(model, batch, num_samples) for batch in pieces(source)])


def _sampled(model: VEPM, batch: GraphBatch, num_samples: int) -> Tensor:
    total = torch.zeros(())
    for _ in range(num_samples):
        out = model(batch.x, batch.edges, batch.batch, batch.num_graphs, sample=True)
        total = total.to(out.logits) + torch.softmax(out.logits, dim=1)
    return total / num_samples
