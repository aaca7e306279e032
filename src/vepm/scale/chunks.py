"""Exact inference on a large graph: layer by layer, a chunk of nodes at a time.

A layer is computed for every node, with all of its neighbours, before the next layer begins. So
nothing is sampled or left out, and memory is a few values per node plus what one chunk needs.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vepm.kernels.features import Features, normalize_rows
from vepm.nn import VEPM, Adjacency, draw
from vepm.nn.composer import NodeComposer
from vepm.nn.convolution import Propagation, over_degrees, propagation
from vepm.scale.large import LargeGraph

EDGES_AT_ONCE = 2**20
"""Edges and nodes of a chunk, unless a single node has more."""


class Inferred(NamedTuple):
    """Results of a forward pass, on the CPU."""

    logits: Tensor
    """Class scores [N, classes]."""
    community_embeddings: Tensor
    """What each metacommunity knows of each node [N, K, H/K]."""


class Chunk:
    """Some consecutive nodes with all edges into them."""

    def __init__(self, graph: LargeGraph, start: int, end: int) -> None:
        self.graph, self.rows = graph, slice(start, end)
        self.count = end - start
        self.everyone, edges = graph.around(torch.arange(start, end))
        """The nodes, followed by their other neighbours."""
        self.edges = Adjacency(edges.to(graph.device), self.everyone.numel())

    def take(self, table: Tensor) -> Tensor:
        """Rows of a table over all nodes, on the device."""
        return table[self.everyone].to(self.graph.device)

    def features(self, norm: str) -> Features:
        """Node features, normalised."""
        return normalize_rows(self.graph.features(self.everyone), norm)

    def plain(self, conv: str, dtype: torch.dtype) -> Propagation:
        """Weights of message passing over the graph as it stands."""
        degree = self.take(self.graph.degree).to(dtype)[:, None]
        if conv == "gin":
            return Propagation(None)
        scale = (degree + 1).rsqrt()
        edge = scale.index_select(0, self.edges.source) * scale.index_select(0, self.edges.target)
        return Propagation(edge, scale.square())

    def shared(self, shares: Tensor, degree: Tensor | None, normalize: str) -> Propagation:
        """Weights of message passing over shares of the edges [e, K]."""
        if degree is None:
            return propagation(self.edges, shares, normalize)
        # The degree of a neighbour includes edges of other chunks.
        return over_degrees(self.take(degree).to(shares.dtype), shares)

    def write(self, rows: Tensor, table: Tensor | None) -> Tensor:
        """A table over all nodes, by default a new one, with the rows of these nodes in it."""
        if table is None:
            table = torch.empty(self.graph.num_nodes, *rows.shape[1:], dtype=rows.dtype)
        table[self.rows] = rows[: self.count].cpu()
        return table


def chunks(graph: LargeGraph) -> Iterator[Chunk]:
    """The graph's nodes in order, with a limited number of edges at a time."""
    cost = graph.pointer + torch.arange(graph.num_nodes + 1)
    start = 0
    while start < graph.num_nodes:
        limit = cost[start] + EDGES_AT_ONCE
        end = int(torch.searchsorted(cost, limit, right=True)) - 1
        end = max(end, start + 1)
        yield Chunk(graph, start, end)
        start = end


def posterior_table(model: VEPM, graph: LargeGraph) -> Tensor:
    """Output of the encoder for every node [N, 1, width], which parametrises the posterior."""
    h: Tensor | None = None
    for layer, norm in zip(model.encoder.layers, [*model.encoder.norms, None], strict=True):
        table: Tensor | None = None
        for chunk in chunks(graph):
            x = chunk.features(model.feature_norm) if h is None else chunk.take(h)
            out = layer(x, chunk.edges, chunk.plain(model.encoder.conv, graph.x.dtype))
            table = chunk.write(out if norm is None else torch.relu(norm(out)), table)
        h = table
    assert h is not None
    return h


def affiliations(model: VEPM, table: Tensor, sample: bool) -> Tensor:
    """Affiliations of every node [N, C]: a sample, or the mean, from :func:`posterior_table`."""
    device = model.activation.device
    parts = table.split(EDGES_AT_ONCE)
    return torch.cat([draw(model.encoder.posterior(p.to(device)), sample).cpu() for p in parts])


def split_edges(model: VEPM, graph: LargeGraph, z: Tensor) -> Iterator[tuple[Chunk, Tensor]]:
    """The chunks with the share of each of their edges in each metacommunity [e, K]."""
    for chunk in chunks(graph):
        yield chunk, model.split_edges(chunk.take(z), chunk.edges)


def classify(model: VEPM, graph: LargeGraph, z: Tensor) -> Inferred:
    """Class scores of every node, given the affiliations [N, C]."""
    bank = model.bank
    degree = _degrees(model, graph, z, bank.normalize)
    states: Tensor | None = None
    for layer, norm in zip(bank.layers, bank.norms, strict=True):
        table: Tensor | None = None
        for chunk, shares in split_edges(model, graph, z):
            weights = chunk.shared(shares, degree, bank.normalize)
            x: Any = None if states is None else chunk.take(states)
            if x is None:
                features = chunk.features(model.feature_norm)
                x = model.fuse(features, chunk.take(z), chunk.edges)
            table = chunk.write(torch.relu(norm(layer(x, chunk.edges, weights))), table)
        states = table
    assert states is not None
    return Inferred(_compose(model, graph, states.flatten(1), z), states)


def _degrees(model: VEPM, graph: LargeGraph, z: Tensor, normalize: str) -> Tensor | None:
    """Degrees that message passing is normalised by, where it uses degrees."""
    if normalize == "graph":
        return graph.degree[:, None]
    if normalize != "community":
        return None
    table: Tensor | None = None
    for chunk, shares in split_edges(model, graph, z):
        table = chunk.write(chunk.edges.sum_at_target(shares), table)
    return table


def _compose(model: VEPM, graph: LargeGraph, h: Tensor, z: Tensor) -> Tensor:
    composer = model.composer
    assert isinstance(composer, NodeComposer)
    degree = None if composer.relevance is None else _degrees(model, graph, z, "community")

    def weights(chunk: Chunk) -> tuple[Propagation, Propagation]:
        """For convolutions, and for scores that walk on."""
        if degree is None:
            return chunk.plain(composer.conv, h.dtype), chunk.plain("gcn", h.dtype)
        shares = model.split_edges(chunk.take(z), chunk.edges)
        return composer.propagations(chunk.edges, h, shares, chunk.take(degree).to(shares.dtype))

    if composer.dense is not None:
        dense, parts = composer.dense, h.split(EDGES_AT_ONCE)
        h = torch.cat([dense(part.to(graph.device)).cpu() for part in parts])
    table: Tensor | None
    for i, layer in enumerate(composer.layers):
        h, table = torch.relu_(h) if i else h, None
        for chunk in chunks(graph):
            out = layer(chunk.take(h), chunk.edges, weights(chunk)[0])
            table = chunk.write(out.squeeze(1), table)
        assert table is not None
        h = table
    start = h
    for _ in range(composer.hops):
        table = None
        for chunk in chunks(graph):
            own = chunk.take(h), chunk.take(start)
            table = chunk.write(composer.walk(*own, chunk.edges, weights(chunk)[1]), table)
        assert table is not None
        h = table
    return h
