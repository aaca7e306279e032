"""Batches of many runs, each of its own graphs, padded to one size."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from vepm.nn import Adjacency
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.scale.executor import Run, seed_of, shuffled
from vepm.scale.many.edges import RunEdges

# The least number of padding nodes of each run. Padding edges run from one node of a pair to the
# other, so that no sum over them feeds another and nothing grows from layer to layer.
SPARE_NODES = 2

Parts = dict[str, Any]  # tensors that differ between runs, by name, stacked [R, ...] or of one run


class Plan(NamedTuple):
    """Where the graphs of one batch per run go: small, so that a GPU gets it in one copy."""

    store: GraphStore
    form: Tensor
    """For each graph and the padding after them [8, R, G + 1]: its index, whether it is not
    padding, and for its nodes and edges their number, the index of the first in the batch, and
    the index of the first in the store."""
    size: tuple[int, int]  # nodes and edges that each run is padded to
    labels: list[int]  # number of labelled graphs of each run

    def laid_out(self) -> tuple[Parts, Callable[[Parts], tuple[GraphBatch, Tensor]]]:
        """The tensors of all runs, and a function that makes a batch of one run's under ``vmap``.

        With the batch come the rows of its labels. Its last graph holds the padding.
        """
        store, (size, edges) = self.store, self.size
        # The graph after the others of a run is its padding.
        runs, padding = self.form.size(1), self.form.size(2) - 1
        node, graph = _members(self.form[2:5], size)
        edge, edge_graph = _members(self.form[5:8], edges)
        starts = self.form[3]
        moved = store.edge_index[:, edge] + torch.gather(starts, 1, edge_graph)
        # Padding edges are spread over pairs of the padding nodes.
        first, each = starts[:, -1:], torch.arange(edges, device=starts.device)
        spare = first + 2 * (each * ((size - first) // 2) // max(edges, 1))
        ends = torch.where(edge_graph < padding, moved, torch.stack([spare, spare + 1]))
        first_node = size * torch.arange(runs, device=store.device)[:, None]
        union = Adjacency((ends + first_node).flatten(1), runs * size, replaceable=True)
        node_mask = graph < padding
        parts = {
            "x": store.x[node].mul_(node_mask[..., None]),
            "edge_index": ends.transpose(0, 1),
            "in_degree": union.degree.view(-1, size),
            "y": pad(store.y[self.form[0, :, :-1]], (0, 1)),
            "batch": graph,
            "node_mask": node_mask,
            "graph_mask": self.form[1].bool(),
        }
        rows = torch.arange(padding + 1, device=store.device)

        def local(own: Parts) -> tuple[GraphBatch, Tensor]:
            ends, degree = own.pop("edge_index"), own.pop("in_degree")
            edges = RunEdges(ends, size, whole=union, axis=0, in_degree=degree)
            return GraphBatch(edges=edges, num_graphs=padding + 1, **own), rows

        return parts, local


def _members(places: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Index of each member of the groups in the store, and its group [R, most]."""
    counts, starts, begin = places
    runs, groups = counts.shape
    group = torch.arange(groups, device=counts.device).repeat(runs)
    group = group.repeat_interleave(counts.flatten(), output_size=runs * most).view(runs, most)
    place = torch.arange(most, device=counts.device) + torch.gather(begin - starts, 1, group)
    return place.where(group < groups - 1, 0), group


def size_of(store: GraphStore, chosen: Sequence[Tensor]) -> tuple[int, int]:
    """Nodes and edges that these batches, given as indices of graphs, are padded to."""
    nodes, edges = zip(*(store.sizes[:, graphs].sum(1).tolist() for graphs in chosen), strict=True)
    return max(nodes) + SPARE_NODES, max(edges)


def plan(store: GraphStore, chosen: Sequence[Tensor], size: tuple[int, int]) -> Plan:
    """Plan one batch per run: the graphs of the given indices, in their order."""
    labels = [part.numel() for part in chosen]
    indices = pad_sequence(list(chosen), batch_first=True)
    mask = torch.arange(indices.size(1)) < torch.tensor(labels)[:, None]
    # Of the nodes and of the edges of each graph [2, R, G + 1].
    counts = store.sizes[:, indices] * mask
    spare = torch.tensor(size)[:, None, None] - counts.sum(2, keepdim=True)
    counts = torch.cat([counts, spare], dim=2)
    places = counts, counts.cumsum(2) - counts, pad(store.starts[:, indices], (0, 1))
    graphs = pad(torch.stack([indices, mask]), (0, 1))
    form = torch.cat([graphs, torch.stack(places, dim=1).flatten(0, 1)])
    return Plan(store, form.to(store.device), size, labels)


class GraphBatches:
    """The batches of a phase, in the order a run of its own would take them.

    All last batches of an epoch are padded to one size, and so are all others, so that a captured
    step can be replayed on them.
    """

    def __init__(
        self, store: GraphStore, runs: Sequence[Run], phase: str, epochs: int, batch_size: int
    ) -> None:
        self.store, self.runs, self.phase, self.batch_size = store, runs, phase, batch_size
        self._sizes = {True: (0, 0), False: (0, 0)}
        for epoch in range(epochs):
            for is_last, parts in self._parts(epoch):
                both = zip(self._sizes[is_last], size_of(store, parts), strict=True)
                nodes, edges = map(max, both)
                self._sizes[is_last] = nodes, edges

    def epoch(self, epoch: int) -> list[Plan]:
        """The batches of an epoch."""
        batches = self._parts(epoch)
        return [plan(self.store, parts, self._sizes[is_last]) for is_last, parts in batches]

    def _parts(self, epoch: int) -> Iterator[tuple[bool, Sequence[Tensor]]]:
        """For each batch, whether it is the last, and each run's graphs."""
        orders = []
        for run in self.runs:
            generator = torch.Generator().manual_seed(seed_of(run.seed, self.phase, epoch))
            orders.append(shuffled(self.store, run, self.phase, self.batch_size, generator))
        last = len(orders[0]) - 1
        for i, parts in enumerate(zip(*orders, strict=True)):
            yield i == last, parts
