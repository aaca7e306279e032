"""Predictions of a trained model, what they rest on, and the calibration of probabilities."""

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from vepm.errors import InputError
from vepm.kernels.features import normalize_rows
from vepm.nn import VEPM
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
        return _explain_in_chunks(model, source)
    parts, edges, offset = [], [], 0
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
    for chunk in chunks(graph):
        own = slice(int(graph.pointer[chunk.rows.start]), int(graph.pointer[chunk.rows.stop]))
        shares[own] = chunk.split(model, z).cpu()
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
        drawn = (map(model.probabilities, _draws(model, p, num_samples)) for p in _parts(source))
        # Added up as they come: all of them at once may not fit in memory.
        sums = [functools.reduce(torch.add, found) for found in drawn]
    return _finite(torch.cat(sums) / max(num_samples, 1))


@torch.no_grad()
def drawn_scores(model: VEPM, source: Source, num_samples: int, seed: int) -> Tensor:
    """Class scores of every draw [S, n, classes], or of the posterior mean [1, n, classes]."""
    model.eval()
    with seeded(model, seed):
        parts = [torch.stack(list(_draws(model, part, num_samples))) for part in _parts(source)]
    return torch.cat(parts, dim=1)


def _parts(source: Source) -> Sequence[GraphBatch | LargeGraph]:
    return [source] if isinstance(source, LargeGraph) else pieces(source)


def _draws(model: VEPM, part: GraphBatch | LargeGraph, num_samples: int) -> Iterator[Tensor]:
    """Class scores of each draw of the affiliations, or those of their mean."""
    table = posterior_table(model, part) if isinstance(part, LargeGraph) else None
    sample = num_samples > 0
    for _ in range(max(num_samples, 1)):
        if isinstance(part, GraphBatch):
            yield model(part.x, part.edges, part.batch, part.num_graphs, sample=sample).logits
        else:
            assert table is not None
            yield classify(model, part, affiliations(model, table, sample=sample)).logits


class Attribution(NamedTuple):
    """A label's log-odds with all communities and without each, at the posterior mean."""

    log_odds: Tensor
    """Of each node's or graph's label [n]."""
    log_odds_without: Tensor
    """The same with one metacommunity at a time left out [n, K]."""
    label_without: Tensor
    """The label each would get then [n, K]."""


@torch.no_grad()
def attribute(model: VEPM, source: GraphBatch | GraphStore, labels: Tensor) -> Attribution:
    r"""How much each metacommunity does for a label.

    .. math:: \log \frac{p(y)}{1 - p(y)} - \log \frac{p_{-k}(y)}{1 - p_{-k}(y)}

    is the support of metacommunity k for label y, where :math:`p_{-k}` is the model's own
    probability when the embedding of each node in k is replaced by the mean over the nodes of the
    batch. Labels are the class of each node or graph that is asked about [n].
    """
    model.eval()
    parts, start = [], 0
    for batch in pieces(source):
        parts.append(_attribute_batch(model, batch, labels[start:]))
        start += parts[-1].log_odds.numel()
    return Attribution(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _attribute_batch(model: VEPM, b: GraphBatch, labels: Tensor) -> Attribution:
    whole = model(b.x, b.edges, b.batch, b.num_graphs)
    label, split = labels[: whole.logits.size(0)], whole.edge_weight
    inputs = model.fuse(normalize_rows(b.x, model.feature_norm), whole.z, b.edges, b.batch)
    states = model.bank(inputs, b.edges, split)
    odds, turned = [], []
    for k in range(states[0].size(1)):
        muted = [state.clone() for state in states]
        for state in muted:
            state[:, k] = state[:, k].mean(0)
        scores, _ = model.compose(inputs, muted, b.edges, split, b.batch, b.num_graphs)
        odds.append(_log_odds(scores, label))
        turned.append(scores.argmax(1))
    return Attribution(
        _log_odds(whole.logits, label), torch.stack(odds, dim=1), torch.stack(turned, dim=1)
    )


def _log_odds(scores: Tensor, label: Tensor) -> Tensor:
    chosen = label[:, None]
    others = scores.scatter(1, chosen, -torch.inf)
    return scores.gather(1, chosen)[:, 0] - torch.logsumexp(others, dim=1)


def calibrate(model: VEPM, source: Source, rows: Tensor, num_samples: int, seed: int) -> None:
    """Fit the inverse temperature of a trained model's probabilities, its ``sharpness``, to labels.

    The rows are labelled nodes or graphs it has not learned from. Which class is most probable at
    the posterior mean stays the same. A graph that is read in chunks is left alone: it would have
    to be read as a whole once more.
    """
    if isinstance(source, LargeGraph) or not rows.numel():
        return
    rows = rows.to(source.y.device)
    scores = drawn_scores(model, source, num_samples, seed)[:, rows]
    model.sharpness.fill_(best_inverse_temperature(scores, source.y[rows]))


def best_inverse_temperature(scores: Tensor, y: Tensor) -> float:
    """The factor of class scores of several draws [S, n, classes] that makes labels [n] likeliest.

    A normal prior of its logarithm keeps it near one where labels are few.
    """
    draws, own = scores.double().cpu(), y.cpu().expand(len(scores), -1)[..., None]

    def cost(logarithm: float) -> float:
        likely = torch.log_softmax(math.exp(logarithm) * draws, dim=-1)
        of_labels = likely.gather(2, own).squeeze(2).logsumexp(0)
        return float(logarithm**2 / 2 - of_labels.sum())

    bounds = (-LARGEST_LOGARITHM, LARGEST_LOGARITHM)
    found = minimize_scalar(cost, bounds=bounds, method="bounded")
    return math.exp(found.x)
