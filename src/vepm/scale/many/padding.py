"""Batches of many runs, each of its own graphs, padded to one size; norms that ignore padding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vepm.kernels.features import dense
from vepm.nn import Adjacency
from vepm.nn.convolution import CommunityNorm
from vepm.objective import Counts
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.ddp import normalise
from vepm.scale.executor import Examples, seed_of
from vepm.scale.many.edges import ManyEdges

SPARE_NODES = 2
"""The least number of padding nodes of each run. Padding edges run from one node of a pair to the
other, so that no sum over them feeds another and nothing grows from layer to layer."""


class PaddingMask:
    """Tells the norms of a model which nodes of the present batch are padding."""

    nodes: Tensor | None = None
    """True for nodes that are not padding [N]; None without padding."""


class PaddedNorm(CommunityNorm):
    """A norm that shares the weights of another, and whose statistics leave padding out."""

    def __init__(self, norm: CommunityNorm, padding: PaddingMask) -> None:
        nn.Module.__init__(self)
        self.norm, self._padding = norm.norm, padding

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [N, K, D]; padding goes through the same map."""
        mask = self._padding.nodes
        if not self.training or mask is None:
            return super().forward(x)
        count = mask.sum()
        share = mask.to(x.dtype) / count
        return normalise(self.norm, x, lambda values: share @ values, count)


@dataclass(frozen=True, eq=False, kw_only=True)
class PaddedGraphs(GraphBatch):
    """Labelled graphs, the last of which is padding that counts nowhere."""

    node_mask: Tensor
    """True for nodes that are not padding [N]."""
    graph_mask: Tensor
    """True for graphs that are not padding [G]."""

    def count(self, rows: Tensor) -> Counts:
        """What to divide sums by."""
        mask = self.graph_mask
        return Counts(self.node_mask.sum(), mask[rows].sum(), mask.sum())

    def keep_nodes(self, values: Tensor) -> Tensor:
        """Values of nodes [N, ...], zero for padding."""
        return torch.where(self.node_mask.view(-1, *[1] * (values.dim() - 1)), values, 0)

    def keep_outputs(self, values: Tensor) -> Tensor:
        """Values of graphs [G, ...], zero for padding."""
        return torch.where(self.graph_mask.view(-1, *[1] * (values.dim() - 1)), values, 0)


class Parts(NamedTuple):
    """The batch of each run, stacked [R, ...]."""

    x: Tensor
    edge_index: Tensor
    y: Tensor
    batch: Tensor
    node_mask: Tensor
    graph_mask: Tensor

    def union(self) -> Adjacency:
        """The graphs of all runs joined into one."""
        runs, nodes, _ = self.x.shape
        first = nodes * torch.arange(runs, device=self.x.device)[:, None, None]
        ends = (self.edge_index + first).transpose(0, 1).flatten(1)
        return Adjacency(ends, runs * nodes, replaceable=True)

    def local(self, union: Adjacency) -> tuple[GraphBatch, Tensor]:
        """One run's batch and the rows of its labels, under ``vmap``."""
        nodes, graphs = self.x.size(0), self.y.size(0)
        edges = ManyEdges(self.edge_index, nodes, graph=union, shared=False)
        batch = PaddedGraphs(
            self.x,
            edges,
            self.y,
            self.batch,
            graphs,
            node_mask=self.node_mask,
            graph_mask=self.graph_mask,
        )
        return batch, torch.arange(graphs, device=self.y.device)


class Size(NamedTuple):
    """What the batch of each run is padded to; there are a few more nodes."""

    nodes: int = 0
    edges: int = 0

    def including(self, store: GraphStore, chosen: Sequence[Tensor]) -> "Size":
        """The least size that holds each of these batches too, given as indices of graphs."""
        nodes = (int(store.nodes[graphs].sum()) for graphs in chosen)
        edges = (int(store.edges[graphs].sum()) for graphs in chosen)
        return Size(max(self.nodes, *nodes), max(self.edges, *edges))


def padded(store: GraphStore, chosen: Sequence[Tensor], size: Size) -> Parts:
    """One batch per run, all of one size: the graphs of the given indices, in their order.

    The last graph of each run holds its padding.
    """
    runs = [store.select(graphs) for graphs in chosen]
    nodes, graphs = size.nodes + SPARE_NODES, max(map(len, chosen))
    batches = [own.y.new_zeros(0) if own.batch is None else own.batch for own in runs]
    return Parts(
        x=_stacked([dense(own.x) for own in runs], nodes),
        edge_index=torch.stack([_with_spare_edges(own.edges, nodes, size.edges) for own in runs]),
        y=_stacked([own.y for own in runs], graphs + 1),
        batch=_stacked(batches, nodes, graphs),
        node_mask=_stacked([torch.ones_like(own, dtype=torch.bool) for own in batches], nodes),
        graph_mask=_stacked([torch.ones_like(r.y, dtype=torch.bool) for r in runs], graphs + 1),
    )


def _stacked(parts: Sequence[Tensor], length: int, value: int = 0) -> Tensor:
    """Tensors [n, ...] of several lengths, padded to one and stacked [R, length, ...]."""
    pads = ((0, 0) * (part.dim() - 1) + (0, length - len(part)) for part in parts)
    both = zip(parts, pads, strict=True)
    return torch.stack([nn.functional.pad(part, pad, value=value) for part, pad in both])


def _with_spare_edges(own: Adjacency, nodes: int, edges: int) -> Tensor:
    """Edges [2, edges], those that are added spread over pairs of the padding nodes."""
    missing = edges - own.source.numel()
    pairs = (nodes - own.num_nodes) // 2
    source = own.num_nodes + 2 * (torch.arange(missing, device=own.source.device) % pairs)
    return torch.cat([own.edge_index, torch.stack([source, source + 1])], dim=1)


class GraphBatches:
    """The batches of a phase, in the order a run of its own would take them.

    In every epoch all batches but the last are padded to the size of the largest, and so are the
    last ones. So a step that was captured can be replayed on all.
    """

    def __init__(
        self,
        examples: Sequence[Examples],
        seeds: Sequence[int],
        phase: str,
        epochs: int,
        batch_size: int,
    ) -> None:
        store = examples[0].source
        assert isinstance(store, GraphStore)
        self.store, self.phase, self.batch_size = store, phase, batch_size
        everything = torch.arange(len(store))
        self._runs = [
            (everything if phase == "pretrain" else own.train, seed)
            for own, seed in zip(examples, seeds, strict=True)
        ]
        self._sizes: dict[bool, Size] = {True: Size(), False: Size()}
        for epoch in range(epochs):
            for is_last, chosen in self._chosen(epoch):
                self._sizes[is_last] = self._sizes[is_last].including(store, chosen)

    def epoch(self, epoch: int) -> tuple[int, Iterator[tuple[Parts, list[int]]]]:
        """The number of batches of an epoch, and each with the number of labels of every run."""
        batches = list(self._chosen(epoch))
        return len(batches), (
            (padded(self.store, chosen, self._sizes[is_last]), [len(own) for own in chosen])
            for is_last, chosen in batches
        )

    def _chosen(self, epoch: int) -> Iterator[tuple[bool, Sequence[Tensor]]]:
        """For each batch, whether it is the last, and each run's graphs."""
        orders = []
        for chosen, seed in self._runs:
            generator = torch.Generator().manual_seed(seed_of(seed, self.phase, epoch))
            order = chosen[torch.randperm(chosen.numel(), generator=generator)]
            orders.append(order.split(self.batch_size or max(order.numel(), 1)))
        last = len(orders[0]) - 1
        for i, parts in enumerate(zip(*orders, strict=True)):
            yield i == last, parts
