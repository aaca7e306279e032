"""Batches of several replicas, each of its own graphs, padded to one size."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vepm.nn import Adjacency
from vepm.training.batches import GraphBatch, GraphStore
from vepm.training.together.edges import OwnEdges

SPARE_NODES = 2
"""Padding nodes each replica has at least. Padding edges run from one of a pair to the other: no
sum over them feeds another, so nothing grows from layer to layer."""


class Parts(NamedTuple):
    """What differs between replicas, stacked [R, ...]."""

    x: Tensor
    edge_index: Tensor
    in_degree: Tensor
    y: Tensor
    batch: Tensor
    nodes_present: Tensor
    graphs_present: Tensor


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """One batch per replica, all of one size; padding is a graph of its own, the last."""

    parts: Parts
    union: Adjacency
    """The graphs of all replicas side by side."""
    labels: list[int]
    """Number of labelled graphs of each replica."""

    def local(self, parts: Parts) -> tuple[GraphBatch, Tensor]:
        """One replica's batch and the rows of its labels, under ``vmap``."""
        graphs = self.parts.y.size(1)
        edges = OwnEdges(
            parts.edge_index,
            self.parts.x.size(1),
            union=self.union,
            in_degree=parts.in_degree,
        )
        batch = GraphBatch(
            parts.x, edges, parts.y, parts.batch, graphs, parts.nodes_present, parts.graphs_present
        )
        return batch, torch.arange(graphs, device=self.parts.y.device)


class Room(NamedTuple):
    """What the batch of each replica is padded to."""

    nodes: int = 0
    edges: int = 0

    def with_(self, store: GraphStore, graphs: Tensor) -> "Room":
        """Enough for the graphs of these numbers as well."""
        nodes, edges = int(store.nodes[graphs].sum()), int(store.edges[graphs].sum())
        return Room(max(self.nodes, nodes), max(self.edges, edges))


class Plan(NamedTuple):
    """Where the graphs of one batch per replica are to go: small, and told to a GPU at once.

    Batches of one form and one room are of one size.
    """

    store: GraphStore
    form: Tensor
    """Of each graph and of the padding after them, its number, whether it is there, and of its
    nodes and edges how many there are, where the first is to go, and where it is in the store
    [8, R, G + 1]."""
    room: Room
    """What each replica is padded to; of nodes there are a few more."""
    labels: list[int]
    """Number of labelled graphs of each replica."""

    def tensors(self) -> list[Tensor | None]:
        """All that differs from batch to batch of one room."""
        return [self.form]

    def laid_out(self) -> PaddedBatch:
        """The batch itself."""
        store, (nodes, edges), (runs, padding) = self.store, self.room, _shape(self.form)
        numbers, present = self.form[0, :, :-1], self.form[1].bool()
        node, graph = _members(self.form[2:5], nodes + SPARE_NODES)
        edge, edge_graph = _members(self.form[5:8], edges)
        starts, size = self.form[3], nodes + SPARE_NODES
        spare = _between_spare_nodes(starts[:, -1:], size, edges)
        moved = store.edge_index[:, edge] + torch.gather(starts, 1, edge_graph)
        ends = torch.where(edge_graph < padding, moved, spare)
        first_node = size * torch.arange(runs, device=store.device)[:, None]
        union = Adjacency((ends + first_node).flatten(1), runs * size, replaceable=True)
        nodes_present = graph < padding
        parts = Parts(
            x=store.x[node].mul_(nodes_present[..., None]),
            edge_index=ends.transpose(0, 1),
            in_degree=union.degree.view(-1, size),
            y=torch.nn.functional.pad(store.y[numbers], (0, 1)),
            batch=graph,
            nodes_present=nodes_present,
            graphs_present=present,
        )
        return PaddedBatch(parts, union, self.labels)


def plan(store: GraphStore, chosen: list[Tensor], room: Room | None = None) -> Plan:
    """Plan one batch per replica: graphs of the given numbers, in their order.

    Args:
        store: Where the graphs are.
        chosen: Numbers of each replica's graphs.
        room: What to pad each replica to; by default the largest's size.
    """
    if room is None:
        room = functools.reduce(lambda room, graphs: room.with_(store, graphs), chosen, Room())
    labels = [part.numel() for part in chosen]
    numbers = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True)
    present = torch.arange(numbers.size(1)) < torch.tensor(labels)[:, None]
    form = torch.stack(
        [
            *(torch.nn.functional.pad(of_graphs, (0, 1)) for of_graphs in (numbers, present)),
            *_places(store.nodes, numbers, present, room.nodes + SPARE_NODES),
            *_places(store.edges, numbers, present, room.edges),
        ]
    )
    return Plan(store, form.to(store.device), room, labels)


def _shape(form: Tensor) -> tuple[int, int]:
    """Replicas, and the number of their padding graph."""
    return form.size(1), form.size(2) - 1


def _between_spare_nodes(first: Tensor, size: int, edges: int) -> Tensor:
    """Ends of padding edges [2, R, edges], spread over pairs of the nodes from the first on."""
    pairs = (size - first) // 2
    each = torch.arange(edges, device=first.device)
    source = first + 2 * (each * pairs // max(edges, 1))
    return torch.stack([source, source + 1])


def _places(
    sizes: Tensor, numbers: Tensor, present: Tensor, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """How many members groups have, where the first goes, and where it is in the store.

    Sizes are counted where they are kept, by the processor: a GPU would have to be waited for.

    Args:
        sizes: Members of every group of the store.
        numbers: Groups of each replica [R, G].
        present: Which of them are no padding [R, G].
        most: Members of each replica, the last group being padding [R, G + 1].
    """
    counts = sizes[numbers] * present
    counts = torch.cat([counts, most - counts.sum(1, keepdim=True)], dim=1)
    begin = torch.nn.functional.pad((sizes.cumsum(0) - sizes)[numbers], (0, 1))
    return counts, counts.cumsum(1) - counts, begin


def _members(places: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Where each member of the groups lies in the store, and its group [R, most].

    Args:
        places: What :func:`_places` found [3, R, G + 1].
        most: Members of each replica.
    """
    counts, starts, begin = places
    runs, groups = counts.shape
    group = torch.arange(groups, device=counts.device).repeat(runs)
    group = group.repeat_interleave(counts.flatten(), output_size=runs * most).view(runs, most)
    place = torch.arange(most, device=counts.device) + torch.gather(begin - starts, 1, group)
    return place.where(group < groups - 1, 0), group
