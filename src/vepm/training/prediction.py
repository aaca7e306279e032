"""Predictions of a trained model, batch by batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from vepm.errors import InputError
from vepm.nn import VEPM
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.chunks import affiliations, classify, posterior_table, split_edges
from vepm.scale.executor import Source
from vepm.scale.large import LargeGraph


def pieces(source: GraphBatch | GraphStore) -> list[GraphBatch]:
    """The source in batches for the model: a graph at once, graphs some at a time."""
    return [source] if isinstance(source, GraphBatch) else source.pieces


@contextmanager
def seeded(model: VEPM, seed: int = 0) -> Iterator[None]:
    """Seed torch inside the block, and restore the caller's random state after it.

    Even a prediction at the posterior mean draws random numbers if the inputs are random.
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
    """Edges [2, E], with nodes indexed over all graphs."""
    edge_weight: Tensor
    """Share of each edge in each metacommunity [E, K]."""
    community_embeddings: Tensor
    """What each metacommunity knows of each node [N, K, H/K]."""
    embeddings: Tensor
    """Composed representation of each node or graph."""


@torch.no_grad()
def explain(model: VEPM, source: Source) -> Explanation:
    """Memberships, the split of the edges and embeddings of every node or graph."""
    model.eval()
    if isinstance(source, LargeGraph):
        with seeded(model):
            return _explain_in_chunks(model, source)
    parts, edges, offset = [], [], 0
    with seeded(model):
        for b in pieces(source):
            parts.append(model(b.x, b.edges, b.batch, b.num_graphs))
            edges.append(b.edges.edge_index + offset)
            offset += b.x.size(0)
    return Explanation(
        _finite(torch.cat([out.z for out in parts])),
        torch.cat(edges, dim=1),
        torch.cat([out.edge_weight for out in parts]),
        torch.cat([out.community_embeddings for out in parts]),
        _finite(torch.cat([out.embeddings for out in parts])),
    )


def _explain_in_chunks(model: VEPM, graph: LargeGraph) -> Explanation:
    z = affiliations(model, posterior_table(model, graph), sample=False)
    found = classify(model, graph, z)
    shares = z.new_empty(graph.num_edges, model.partitioner.num_metacommunities)
    done = 0
    for _, part in split_edges(model, graph, z):
        shares[done : done + len(part)] = part.cpu()
        done += len(part)
    target = torch.arange(graph.num_nodes).repeat_interleave(graph.degree)
    edge_index = torch.stack([graph.columns.long(), target])
    logits = _finite(found.logits)
    return Explanation(_finite(z), edge_index, shares, found.community_embeddings, logits)


def _finite(found: Tensor) -> Tensor:
    if not found.isfinite().all():
        raise InputError(
            "the model gives no finite numbers for these data; bring the features to the scale "
            "they had in training"
        )
    return found


@torch.no_grad()
def scores(model: VEPM, source: Source) -> Tensor:
    """Class scores [n, classes] of every node or graph at the posterior mean."""
    model.eval()
    if isinstance(source, LargeGraph):
        with seeded(model):
            z = affiliations(model, posterior_table(model, source), sample=False)
            return classify(model, source, z).logits
    with seeded(model):
        parts = [model(b.x, b.edges, b.batch, b.num_graphs).logits for b in pieces(source)]
    return torch.cat(parts)


@torch.no_grad()
def probabilities(model: VEPM, source: Source, num_samples: int = 0, seed: int = 0) -> Tensor:
    r"""Class probabilities [n, classes], averaged over draws of the affiliations.

    .. math:: \hat p(y) = \frac{1}{S} \sum_{s=1}^S p_\theta(y \mid X, A, Z^{(s)})

    Args:
        model: The model.
        source: A graph, or a store of graphs.
        num_samples: Number of draws S; 0 takes the posterior mean instead.
        seed: Seed of the draws.
    """
    if num_samples == 0:
        return _finite(model.probabilities(scores(model, source)))
    model.eval()
    with seeded(model, seed):
        if isinstance(source, LargeGraph):
            return _finite(_sampled_in_chunks(model, source, num_samples))
        sampled = [_sampled(model, batch, num_samples) for batch in pieces(source)]
    return _finite(torch.cat(sampled))


@torch.no_grad()
def drawn_scores(
    model: VEPM, source: GraphBatch | GraphStore, num_samples: int, seed: int
) -> Tensor:
    """Class scores of every draw [S, n, classes], or of the posterior mean [1, n, classes]."""
    if num_samples == 0:
        return scores(model, source)[None]
    model.eval()
    with seeded(model, seed):
        parts = [torch.stack(list(_draws(model, b, num_samples))) for b in pieces(source)]
    return torch.cat(parts, dim=1)


def _sampled(model: VEPM, batch: GraphBatch, num_samples: int) -> Tensor:
    total = torch.zeros(())
    for logits in _draws(model, batch, num_samples):
        total = total.to(logits) + model.probabilities(logits)
    return total / num_samples


def _draws(model: VEPM, batch: GraphBatch, num_samples: int) -> Iterator[Tensor]:
    for _ in range(num_samples):
        yield model(batch.x, batch.edges, batch.batch, batch.num_graphs, sample=True).logits


def _sampled_in_chunks(model: VEPM, graph: LargeGraph, num_samples: int) -> Tensor:
    table = posterior_table(model, graph)
    total = torch.zeros(())
    for _ in range(num_samples):
        logits = classify(model, graph, affiliations(model, table, sample=True)).logits
        total = total.to(logits) + model.probabilities(logits)
    return total / num_samples
