"""Predictions of a trained model, what they rest on, and the calibration of probabilities."""

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from vepm.errors import InputError
from vepm.kernels.features import normalize_rows
from vepm.nn import VEPM, Adjacency
from vepm.scale.batches import GraphBatch, GraphStore, pieces
from vepm.scale.chunks import affiliations, chunks, classify, posterior_table
from vepm.scale.executor import Source
from vepm.scale.large import LargeGraph

LARGEST_LOGARITHM = 4.0  # bound of the logarithm of an inverse temperature


@contextmanager
def seeded(model: VEPM, seed: int = 0) -> Iterator[None]:
    """Seed torch inside the block, and restore the caller's random state after it."""
    devices = [model.activation.device] if model.activation.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


class Explanation(NamedTuple):
    """Communities and embeddings behind a prediction, at the posterior mean."""

    memberships: Tensor  # mean affiliation of each node to each community [N, C]
    edge_index: Tensor  # edges [2, E], with nodes indexed over all graphs
    edge_weight: Tensor  # share of each edge in each metacommunity [E, K]
    community_embeddings: Tensor  # what each metacommunity knows of each node [N, K, H/K]
    embeddings: Tensor  # composed representation of each node or graph


@torch.no_grad()
def explain(model: VEPM, source: Source, nodes: Tensor | None = None) -> Explanation:
    """Memberships, the split of the edges and embeddings of every node or graph.

    Of a large graph the edges may be those between some ``nodes`` alone, renumbered from 0.
    """
    model.eval()
    if isinstance(source, LargeGraph):
        z = affiliations(model, posterior_table(model, source), sample=False)
        split = _large_split(model, source, z, nodes)
        logits, *embeddings = classify(model, source, z)
        return Explanation(_finite(z), *split, embeddings[0], _finite(logits))
    parts, offset = [], 0
    for b in pieces(source):
        out = model(b.x, b.edges, b.batch, b.num_graphs)
        edge_index = b.edges.edge_index + offset
        offset += b.x.size(0)
        states = out.community_embeddings, _finite(out.embeddings)
        parts.append(Explanation(_finite(out.z), edge_index, out.edge_weight, *states))
    every, edges, *others = zip(*parts, strict=True)
    return Explanation(torch.cat(every), torch.cat(edges, dim=1), *map(torch.cat, others))


def _large_split(
    model: VEPM, graph: LargeGraph, z: Tensor, nodes: Tensor | None
) -> tuple[Tensor, Tensor]:
    if nodes is not None:
        edges = Adjacency(graph.inside(nodes).to(graph.device), nodes.numel())
        return edges.edge_index, model.split_edges(z[nodes].to(graph.device), edges)
    shares = z.new_empty(graph.num_edges, model.partitioner.num_metacommunities)
    for chunk in chunks(graph):
        first, end = graph.pointer[chunk.rows.start], graph.pointer[chunk.rows.stop]
        shares[first:end] = chunk.split(model, z).cpu()
    target = torch.arange(graph.num_nodes).repeat_interleave(graph.degree)
    return torch.stack([graph.columns.long(), target]), shares


def _finite(found: Tensor) -> Tensor:
    if not found.isfinite().all():
        raise InputError(
            "the model gives no finite numbers for these data; bring the features to the scale "
            "they had in training"
        )
    return found


def scores(model: VEPM, source: Source) -> Tensor:
    """Class scores [n, classes] of every node or graph at the posterior mean."""
    return drawn_scores(model, source, 0, 0)[0]


@torch.no_grad()
def probabilities(model: VEPM, source: Source, num_samples: int = 0, seed: int = 0) -> Tensor:
    r"""Class probabilities [n, classes], averaged over draws of the affiliations.

    .. math:: \hat p(y) = \frac{1}{S} \sum_{s=1}^S p_\theta(y \mid X, A, Z^{(s)})

    Without draws (S = 0) the posterior mean takes their place.
    """
    model.eval()
    with seeded(model, seed):
        drawn = _draws(model, source, num_samples)
        # Added up as they come: all of them at once may not fit in memory.
        sums = [functools.reduce(torch.add, map(model.probabilities, own)) for own in drawn]
    return _finite(torch.cat(sums) / max(num_samples, 1))


@torch.no_grad()
def drawn_scores(model: VEPM, source: Source, num_samples: int, seed: int) -> Tensor:
    """Class scores of every draw [S, n, classes], or of the posterior mean [1, n, classes]."""
    model.eval()
    with seeded(model, seed):
        parts = [torch.stack(list(own)) for own in _draws(model, source, num_samples)]
    return torch.cat(parts, dim=1)


def _draws(model: VEPM, source: Source, num_samples: int) -> Iterator[Iterator[Tensor]]:
    """For each part of a source, class scores by draws of the affiliations or by their mean."""
    times, sample = range(max(num_samples, 1)), num_samples > 0
    if isinstance(source, LargeGraph):
        table = posterior_table(model, source)
        drawn = (affiliations(model, table, sample) for _ in times)
        yield (classify(model, source, z).logits for z in drawn)
        return
    for b in pieces(source):
        yield (model(b.x, b.edges, b.batch, b.num_graphs, sample=sample).logits for _ in times)


class Attribution(NamedTuple):
    """A label's log-odds with all communities and without each, at the posterior mean."""

    log_odds: Tensor  # of each node's or graph's label [n]
    log_odds_without: Tensor  # the same with one metacommunity at a time left out [n, K]
    label_without: Tensor  # the label each would get then [n, K]


@torch.no_grad()
def attribute(model: VEPM, source: GraphBatch | GraphStore, labels: Tensor) -> Attribution:
    r"""How much each metacommunity contributes to a label, the class of each node or graph [n].

    .. math:: \log \frac{p(y)}{1 - p(y)} - \log \frac{p_{-k}(y)}{1 - p_{-k}(y)}

    is the support of metacommunity k for label y, where :math:`p_{-k}` is the probability when the
    embedding of each node in k is replaced by the mean over the nodes of the batch.
    """
    model.eval()
    parts, start = [], 0
    for b in pieces(source):
        whole = model(b.x, b.edges, b.batch, b.num_graphs)
        split, label = whole.edge_weight, labels[start : start + whole.logits.size(0)]
        start += label.numel()
        inputs = model.fuse(normalize_rows(b.x, model.feature_norm), whole.z, b.edges, b.batch)
        states = model.bank(inputs, b.edges, split)
        scores = [whole.logits]
        for k in range(states[0].size(1)):
            muted = [state.clone() for state in states]
            for state in muted:
                state[:, k] = state[:, k].mean(0)
            scores += model.compose(inputs, muted, b.edges, split, b.batch, b.num_graphs)[:1]
        all_scores = torch.stack(scores, dim=1)
        chosen = label[:, None, None].expand(-1, len(scores), 1)
        others = all_scores.scatter(2, chosen, -torch.inf).logsumexp(2)
        odds = all_scores.gather(2, chosen).squeeze(2) - others
        parts.append(Attribution(odds[:, 0], odds[:, 1:], all_scores[:, 1:].argmax(2)))
    return Attribution(*map(torch.cat, zip(*parts, strict=True)))


def calibrate(model: VEPM, source: Source, rows: Tensor, num_samples: int, seed: int) -> None:
    """Fit the inverse temperature of a model's probabilities to rows it has not learned from.

    Which class is most probable at the posterior mean stays the same. A graph that is read in
    chunks is left alone: it would have to be read as a whole once more.
    """
    if isinstance(source, LargeGraph) or not rows.numel():
        return
    rows = rows.to(source.y.device)
    scores = drawn_scores(model, source, num_samples, seed)[:, rows]
    model.sharpness.fill_(best_inverse_temperature(scores, source.y[rows]))


def best_inverse_temperature(scores: Tensor, y: Tensor) -> float:
    """The factor of the scores of draws [S, n, classes] under which labels [n] are likeliest."""
    draws, own = scores.double().cpu(), y.cpu().expand(len(scores), -1)[..., None]
    found = minimize_scalar(
        # A normal prior keeps the factor near one where labels are few.
        lambda logarithm: float(
            logarithm**2 / 2
            - torch.log_softmax(math.exp(logarithm) * draws, dim=-1)
            .gather(2, own)
            .logsumexp(0)
            .sum()
        ),
        bounds=(-LARGEST_LOGARITHM, LARGEST_LOGARITHM),
        method="bounded",
    )
    return math.exp(found.x)
