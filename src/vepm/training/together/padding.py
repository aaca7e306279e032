"""Batches of several replicas, each of its own graphs, padded to one size."""

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

    def tensors(self) -> list[Tensor | None]:
        """All that differs from batch to batch of one size."""
        return [*self.parts, *self.union.tensors()]


class Room(NamedTuple):
    """What the batch of each replica is padded to, or more if its graphs are larger."""

    nodes: int = 0
    edges: int = 0

    def with_(self, store: GraphStore, graphs: Tensor) -> "Room":
        """Enough for the graphs of these numbers as well."""
        nodes, edges = int(store.nodes[graphs].sum()), int(store.edges[graphs].sum())
        return Room(max(self.nodes, nodes), max(self.edges, edges))


NO_ROOM = Room()


def pad(store: GraphStore, chosen: list[Tensor], room: Room = NO_ROOM) -> PaddedBatch:
    """Cut one batch per replica from a store: the graphs of the given numbers, in their order."""
    labels = [part.numel() for part in chosen]
    numbers = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True)
    present = torch.arange(numbers.size(1)) < torch.tensor(labels)[:, None]
    device = store.device
    node, graph, starts = _places(store.nodes, numbers, present, room.nodes, SPARE_NODES, device)
    edge, edge_graph, _ = _places(store.edges, numbers, present, room.edges, 0, device)
    size, padding = node.size(1), numbers.size(1)
    offset = torch.gather(starts, 1, edge_graph)
    spare = _between_spare_nodes(starts[:, -1:], size, edge.size(1))
    ends = torch.where(edge_graph < padding, store.edge_index[:, edge] + offset, spare)
    first_node = size * torch.arange(len(chosen), device=device)[:, None]
    union = Adjacency((ends + first_node).flatten(1), len(chosen) * size, replaceable=True)
    nodes_present = graph < padding
    parts = Parts(
        x=store.x[node].mul_(nodes_present[..., None]),
        edge_index=ends.transpose(0, 1),
        in_degree=union.degree.view(-1, size),
        y=torch.nn.functional.pad(store.y[numbers.to(device)], (0, 1)),
        batch=graph,
        nodes_present=nodes_present,
        graphs_present=torch.nn.functional.pad(present, (0, 1)).to(device),
    )
    return PaddedBatch(parts, union, labels)


def _between_spare_nodes(first: Tensor, size: int, edges: int) -> Tensor:
    """Ends of padding edges [2, R, edges], spread over pairs of the nodes from the first on."""
    pairs = (size - first) // 2
    each = torch.arange(edges, device=first.device)
    source = first + 2 * (each * pairs // max(edges, 1))
    return torch.stack([source, source + 1])


def _places(
    sizes: Tensor, numbers: Tensor, present: Tensor, room: int, spare: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Where the members of the chosen groups lie in the store, replica by replica.

    Args:
        sizes: Members of every group of the store.
        numbers: Groups of each replica [R, G].
        present: Which of them are no padding [R, G].
        room: Members of each replica but those of its padding group, at least.
        spare: Members of the padding group of each replica, at least.
        device: Where to work out places. Sizes are counted where they are: a GPU would have to
            be waited for.

    Returns:
        Place of each member [R, most], its group among the replica's, the padding one being
        the last [R, most], and where each group begins [R, G + 1].
    """
    runs, groups = numbers.shape
    counts = sizes[numbers] * present
    filled = counts.sum(1, keepdim=True)
    most = max(int(filled.max()), room) + spare
    counts = torch.cat([counts, most - filled], dim=1)
    starts = counts.cumsum(1) - counts
    begin = torch.nn.functional.pad((sizes.cumsum(0) - sizes)[numbers], (0, 1))
    counts, starts, begin = torch.stack([counts, starts, begin]).to(device)
    group = torch.arange(groups + 1, device=device).repeat(runs)
    group = group.repeat_interleave(counts.flatten(), output_size=runs * most).view(runs, most)
    place = torch.arange(most, device=device) + torch.gather(begin - starts, 1, group)
    return place.where(group < groups, 0), group, starts
