"""Batches of many runs, each of its own graphs, padded to one size."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from vepm.nn import Adjacency
from vepm.scale.batches import GraphBatch, GraphStore
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
