"""Batches of several replicas, each of its own graphs, padded to one size."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vepm.nn import Adjacency
from vepm.training.batches import GraphBatch, GraphStore
from vepm.training.together.edges import OwnEdges

SPARE_NODES = 2
"""Padding nodes each replica has at least. Padding edges run from the last but one to the last:
no sum over them feeds another, so nothing grows from layer to layer."""


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


def pad(store: GraphStore, chosen: list[Tensor]) -> PaddedBatch:
    """Cut one batch per replica from a store: the graphs of the given numbers, in their order."""
    labels = [part.numel() for part in chosen]
    numbers = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True)
    present = torch.arange(numbers.size(1)) < torch.tensor(labels)[:, None]
    node, graph, starts = _places(store.nodes, numbers, present, SPARE_NODES)
    edge, edge_graph, _ = _places(store.edges, numbers, present, 0)
    size, padding, device = node.size(1), numbers.size(1), store.device
    offset = torch.gather(starts, 1, edge_graph).to(device)
    edge_present = (edge_graph < padding).to(device)
    spare = torch.tensor([size - 2, size - 1], device=device)[:, None, None]
    ends = torch.where(edge_present, store.edge_index[:, edge.to(device)] + offset, spare)
    first_node = size * torch.arange(len(chosen), device=device)[:, None]
    union = Adjacency((ends + first_node).flatten(1), len(chosen) * size)
    nodes_present = (graph < padding).to(device)
    parts = Parts(
        x=store.x[node.to(device)].mul_(nodes_present[..., None]),
        edge_index=ends.transpose(0, 1),
        in_degree=union.degree.view(-1, size),
        y=torch.nn.functional.pad(store.y[numbers.to(device)], (0, 1)),
        batch=graph.to(device),
        nodes_present=nodes_present,
        graphs_present=torch.nn.functional.pad(present, (0, 1)).to(device),
    )
    return PaddedBatch(parts, union, labels)


def _places(
    sizes: Tensor, numbers: Tensor, present: Tensor, spare: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Where the members of the chosen groups lie in the store, replica by replica.

    Args:
        sizes: Members of every group of the store.
        numbers: Groups of each replica [R, G].
        present: Which of them are no padding [R, G].
        spare: Members of the padding group of each replica, at least.

    Returns:
        Place of each member [R, most], its group among the replica's, the padding one being
        the last [R, most], and where each group begins [R, G + 1].
    """
    runs, groups = numbers.shape
    counts = sizes[numbers] * present
    filled = counts.sum(1, keepdim=True)
    most = int(filled.max()) + spare
    counts = torch.cat([counts, most - filled], dim=1)
    group = torch.arange(groups + 1).repeat(runs).repeat_interleave(counts.flatten())
    group = group.view(runs, most)
    starts = counts.cumsum(1) - counts
    begin = torch.nn.functional.pad((sizes.cumsum(0) - sizes)[numbers], (0, 1))
    place = torch.arange(most) + torch.gather(begin - starts, 1, group)
    return place.where(group < groups, 0), group, starts
