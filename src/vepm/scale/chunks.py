"""Exact inference on a large graph: each layer for all nodes, a chunk at a time, then the next."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from vepm.kernels.features import Features, normalize_rows
from vepm.nn import VEPM, Adjacency, Prediction, draw
from vepm.nn.composer import NodeComposer
from vepm.nn.convolution import plain_propagation, propagation
from vepm.scale.large import LargeGraph

EDGES_AT_ONCE = 2**20  # edges and nodes of a chunk, unless a single node has more


class Chunk:
    """Some consecutive nodes with all edges into them."""

    def __init__(self, graph: LargeGraph, start: int, end: int) -> None:
        self.graph, self.rows, self.count = graph, slice(start, end), end - start
        self.everyone, edges = graph.around(torch.arange(start, end))
        # Some edges into the neighbours belong to other chunks.
        degree = self.take(graph.degree)
        self.edges = Adjacency(edges.to(graph.device), self.everyone.numel(), in_degree=degree)

    def take(self, table: Tensor) -> Tensor:
        """Rows of a table over all nodes, on the device."""
        return table[self.everyone].to(self.graph.device)

    def features(self, model: VEPM) -> Features:
        """Node features, normalised as the model does."""
        return normalize_rows(self.graph.features(self.everyone), model.feature_norm)

    def split(self, model: VEPM, z: Tensor) -> Tensor:
        """Share of each edge in each metacommunity [e, K], given affiliations [N, C]."""
        return model.split_edges(self.take(z), self.edges)


def chunks(graph: LargeGraph) -> Iterator[Chunk]:
    """The graph's nodes in order, with a limited number of edges at a time."""
    cost = graph.pointer + torch.arange(graph.num_nodes + 1)
    start = 0
    while start < graph.num_nodes:
        limit = cost[start] + EDGES_AT_ONCE
        end = max(int(torch.searchsorted(cost, limit, right=True)) - 1, start + 1)
        yield Chunk(graph, start, end)
        start = end


def _table(graph: LargeGraph, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Apply a function to each chunk, its own nodes first, and collect a table over all nodes."""
    table = torch.empty(0)
    for chunk in chunks(graph):
        rows = function(chunk, *arguments)
        if not table.numel():
            table = torch.empty(graph.num_nodes, *rows.shape[1:], dtype=rows.dtype)
        table[chunk.rows] = rows[: chunk.count].cpu()
    return table


def posterior_table(model: VEPM, graph: LargeGraph) -> Tensor:
    """Output of the encoder for every node [N, 1, width], which parametrises the posterior."""
    encoder = model.encoder

    def layer(chunk: Chunk, i: int, h: Tensor) -> Tensor:
        x = chunk.take(h) if i else chunk.features(model)
        weights = plain_propagation(chunk.edges, graph.x, encoder.conv)
        out: Tensor = encoder.layers[i](x, chunk.edges, weights)
        return torch.relu(encoder.norms[i](out)) if i < len(encoder.norms) else out

    h = torch.empty(0)
    for i in range(len(encoder.layers)):
        h = _table(graph, layer, i, h)
    return h


def affiliations(model: VEPM, table: Tensor, sample: bool) -> Tensor:
    """Affiliations of every node [N, C]: a sample, or the mean, from :func:`posterior_table`."""
    device = model.activation.device
    parts = table.split(EDGES_AT_ONCE)
    return torch.cat([draw(model.encoder.posterior(p.to(device)), sample).cpu() for p in parts])


def classify(model: VEPM, graph: LargeGraph, z: Tensor) -> Prediction:
    """Prediction for every node, on the CPU, given the affiliations [N, C]."""
    bank, composer = model.bank, model.composer
    assert isinstance(composer, NodeComposer)
    degree, h = torch.empty(0), torch.empty(0)
    if bank.normalize == "community" or composer.relevance is not None:
        # Of every node in every metacommunity [N, K].
        degree = _table(graph, lambda chunk: chunk.edges.sum_at_target(chunk.split(model, z)))

    def bank_layer(chunk: Chunk, i: int, h: Tensor) -> Tensor:
        known = chunk.take(degree) if bank.normalize == "community" else None
        weights = propagation(chunk.edges, chunk.split(model, z), bank.normalize, known)
        x = chunk.take(h) if i else model.fuse(chunk.features(model), chunk.take(z), chunk.edges)
        return torch.relu(bank.norms[i](bank.layers[i](x, chunk.edges, weights)))

    def composed(chunk: Chunk, h: Tensor, layer: Callable[..., Tensor] | None = None) -> Tensor:
        """Scores after a convolution of the composer or, by default, a step of propagation."""
        known = () if composer.relevance is None else (chunk.split(model, z), chunk.take(degree))
        weights, walk = composer.propagations(chunk.edges, h, *known)
        if layer is not None:
            return layer(chunk.take(h), chunk.edges, weights).squeeze(1)
        return composer.walk(chunk.take(h), chunk.take(start), chunk.edges, walk)

    for i in range(len(bank.layers)):
        h = _table(graph, bank_layer, i, h)
    scores = h.flatten(1)
    if (dense := composer.dense) is not None:
        scores = torch.cat([dense(p.to(graph.device)).cpu() for p in scores.split(EDGES_AT_ONCE)])
    for i, layer in enumerate(composer.layers):
        scores = _table(graph, composed, torch.relu_(scores) if i else scores, layer)
    start = scores
    for _ in range(composer.hops):
        scores = _table(graph, composed, scores)
    return Prediction(scores, h, scores)
