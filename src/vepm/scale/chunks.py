"""Exact inference on a large graph: layer by layer, a chunk of nodes at a time.

A layer is computed for every node, with all of its neighbours, before the next layer begins. So
nothing is sampled or left out, and memory is a few values per node plus what one chunk needs.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from vepm.kernels.features import Features, normalize_rows
from vepm.nn import VEPM, Adjacency, Prediction, draw
from vepm.nn.composer import NodeComposer
from vepm.nn.convolution import Propagation, over_degrees, plain_propagation, propagation
from vepm.scale.large import LargeGraph

EDGES_AT_ONCE = 2**20  # edges and nodes of a chunk, unless a single node has more


class Chunk:
    """Some consecutive nodes with all edges into them."""

    def __init__(self, graph: LargeGraph, start: int, end: int) -> None:
        self.graph, self.rows, self.count = graph, slice(start, end), end - start
        self.everyone, edges = graph.around(torch.arange(start, end))
        """The nodes, followed by their other neighbours."""
        # Some edges into the neighbours belong to other chunks.
        degree = self.take(graph.degree)
        self.edges = Adjacency(edges.to(graph.device), self.everyone.numel(), in_degree=degree)

    def take(self, table: Tensor) -> Tensor:
        """Rows of a table over all nodes, on the device."""
        return table[self.everyone].to(self.graph.device)

    def features(self, norm: str) -> Features:
        """Node features, normalised."""
        return normalize_rows(self.graph.features(self.everyone), norm)

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
    """A table over all nodes of what a function says of each chunk, its own nodes first."""
    table = torch.empty(0)
    for chunk in chunks(graph):
        rows = function(chunk, *arguments)
        if not table.numel():
            table = torch.empty(graph.num_nodes, *rows.shape[1:], dtype=rows.dtype)
        table[chunk.rows] = rows[: chunk.count].cpu()
    return table


def _layers(graph: LargeGraph, layer: Callable[..., Tensor], count: int) -> Tensor:
    """The last of some tables, each made from the one before; there is none before the first."""
    h = _table(graph, layer, 0, None)
    for i in range(1, count):
        h = _table(graph, layer, i, h)
    return h


def posterior_table(model: VEPM, graph: LargeGraph) -> Tensor:
    """Output of the encoder for every node [N, 1, width], which parametrises the posterior."""
    encoder = model.encoder

    def layer(chunk: Chunk, i: int, h: Tensor | None) -> Tensor:
        x = chunk.features(model.feature_norm) if h is None else chunk.take(h)
        weights = plain_propagation(chunk.edges, graph.x, encoder.conv)
        out: Tensor = encoder.layers[i](x, chunk.edges, weights)
        return torch.relu(encoder.norms[i](out)) if i < len(encoder.norms) else out

    return _layers(graph, layer, len(encoder.layers))


def affiliations(model: VEPM, table: Tensor, sample: bool) -> Tensor:
    """Affiliations of every node [N, C]: a sample, or the mean, from :func:`posterior_table`."""
    device = model.activation.device
    parts = table.split(EDGES_AT_ONCE)
    return torch.cat([draw(model.encoder.posterior(p.to(device)), sample).cpu() for p in parts])


def classify(model: VEPM, graph: LargeGraph, z: Tensor) -> Prediction:
    """What the model says of every node, on the CPU, given the affiliations [N, C]."""
    bank = model.bank
    degree = _degrees(model, graph, z) if bank.normalize == "community" else None

    def layer(chunk: Chunk, i: int, h: Tensor | None) -> Tensor:
        shares = chunk.split(model, z)
        if degree is None:
            weights = propagation(chunk.edges, shares, bank.normalize)
        else:
            weights = over_degrees(chunk.take(degree).to(shares.dtype), shares)
        x: Any = None if h is None else chunk.take(h)
        if x is None:
            x = model.fuse(chunk.features(model.feature_norm), chunk.take(z), chunk.edges)
        return torch.relu(bank.norms[i](bank.layers[i](x, chunk.edges, weights)))

    h = _layers(graph, layer, len(bank.layers))
    logits = _compose(model, graph, h.flatten(1), z)
    return Prediction(logits, h, logits)


def _degrees(model: VEPM, graph: LargeGraph, z: Tensor) -> Tensor:
    """Degree of every node in every metacommunity [N, K]."""
    return _table(graph, lambda chunk: chunk.edges.sum_at_target(chunk.split(model, z)))


def _compose(model: VEPM, graph: LargeGraph, h: Tensor, z: Tensor) -> Tensor:
    composer = model.composer
    assert isinstance(composer, NodeComposer)
    degree = None if composer.relevance is None else _degrees(model, graph, z)

    def weights(chunk: Chunk) -> tuple[Propagation, Propagation]:
        """For convolutions, and for scores that walk on."""
        if degree is None:
            return composer.propagations(chunk.edges, h)
        shares = chunk.split(model, z)
        return composer.propagations(chunk.edges, h, shares, chunk.take(degree).to(shares.dtype))

    def layer(chunk: Chunk, i: int, h: Tensor) -> Tensor:
        return composer.layers[i](chunk.take(h), chunk.edges, weights(chunk)[0]).squeeze(1)

    def walk(chunk: Chunk, h: Tensor, start: Tensor) -> Tensor:
        own = chunk.take(h), chunk.take(start)
        return composer.walk(*own, chunk.edges, weights(chunk)[1])

    if composer.dense is not None:
        dense, parts = composer.dense, h.split(EDGES_AT_ONCE)
        h = torch.cat([dense(part.to(graph.device)).cpu() for part in parts])
    for i in range(len(composer.layers)):
        h = _table(graph, layer, i, torch.relu_(h) if i else h)
    start = h
    for _ in range(composer.hops):
        h = _table(graph, walk, h, start)
    return h
