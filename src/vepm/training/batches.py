"""Graphs as the training loop sees them: on the device, joined, with their edges sorted once."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.kernels.features import Features
from vepm.nn import Adjacency, compact
from vepm.training.totals import Part


class Whole(NamedTuple):
    """What the sums over a batch are divided by, where it is a share of something larger.

    The terms of the shares of a step add up to those of the step; those of the steps of an epoch
    are on average those of the whole graph.
    """

    nodes: float | Tensor
    """Nodes of the step, or of the graph per step."""
    labels: float | Tensor
    """The same of labels."""
    graphs: float | Tensor = 1.0
    """The same of graphs."""


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """One graph, or several joined side by side."""

    x: Features
    """Node features [N, F]."""
    edges: Adjacency
    """Edges in both directions."""
    y: Tensor
    """Labels of the nodes [N] or graphs [G]; -1 where unknown."""
    batch: Tensor | None = None
    """Graph of each node [N]; nothing for a single graph."""
    num_graphs: int = 1
    nodes_present: Tensor | None = None
    """Which nodes are no padding [N]; nothing if none is."""
    graphs_present: Tensor | None = None
    """Which graphs are no padding [G]; nothing if none is."""
    whole: Whole | None = None
    """What it is a share of; nothing if of nothing larger."""
    part: Part | None = None
    """Where it stands in a large graph; nothing for whole graphs."""

    def counted(self, rows: Tensor) -> Whole:
        """What to divide sums by, given the labelled rows; padding does not count."""
        if self.whole is not None:
            return self.whole
        nodes, graphs = self.nodes_present, self.graphs_present
        return Whole(
            self.x.size(0) if nodes is None else nodes.sum(),
            rows.numel() if graphs is None else graphs[rows].sum(),
            self.num_graphs if graphs is None else graphs.sum(),
        )


GRAPHS_AT_ONCE = 512


class GraphStore:
    """All graphs of a dataset in one piece on a device, from which batches are cut by index.

    Args:
        graphs: PyG graphs with ``x``, ``edge_index`` and ``y``.
        device: Where to keep them.

    Example:
        >>> graph = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]),
        ...              y=torch.tensor([1]))
        >>> GraphStore([graph, graph, graph]).select(torch.tensor([2, 0])).num_graphs
        2
    """

    def __init__(self, graphs: Sequence[Data], device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.x = torch.cat([g.x for g in graphs]).to(device)
        self.edge_index = torch.cat([g.edge_index for g in graphs], dim=1).to(device)
        self.y = torch.cat([g.y for g in graphs]).to(device)
        # Sizes stay with the processor that plans batches: asking a GPU would wait for it.
        self.nodes = torch.tensor([g.num_nodes for g in graphs])
        self.edges = torch.tensor([g.edge_index.size(1) for g in graphs])

    def __len__(self) -> int:
        return self.nodes.numel()

    def select(self, graphs: Tensor, whole: Whole | None = None) -> GraphBatch:
        """Join the graphs with the given numbers [G], in that order, perhaps as a share."""
        graphs = graphs.cpu()
        nodes, edges = self.nodes[graphs], self.edges[graphs]
        node = ragged(self.nodes, graphs).to(self.device)
        edge = ragged(self.edges, graphs).to(self.device)
        offset = (nodes.cumsum(0) - nodes).repeat_interleave(edges).to(self.device)
        return GraphBatch(
            x=self.x[node],
            edges=Adjacency(self.edge_index[:, edge] + offset, node.numel()),
            y=self.y[graphs.to(self.device)],
            batch=torch.arange(graphs.numel()).repeat_interleave(nodes).to(self.device),
            num_graphs=graphs.numel(),
            whole=whole,
        )

    @functools.cached_property
    def pieces(self) -> list[GraphBatch]:
        """All graphs in their order, in as many batches as it takes, joined once."""
        found, first = [], 0
        for part in torch.arange(len(self)).split(GRAPHS_AT_ONCE):
            last = first + int(self.nodes[part].sum())
            # The features lie in this order already.
            found.append(replace(self.select(part), x=self.x[first:last]))
            first = last
        return found

    def share(self, graphs: Tensor, rank: int, size: int) -> GraphBatch:
        """One of ``size`` shares of the graphs with the given numbers."""
        if size == 1:
            return self.select(graphs)
        nodes, count = int(self.nodes[graphs].sum()), graphs.numel()
        return self.select(graphs.tensor_split(size)[rank], Whole(nodes, count, count))


def single_graph(graph: Data, device: torch.device | str = "cpu") -> GraphBatch:
    """A graph whose nodes are labelled, as one batch."""
    edges = Adjacency(graph.edge_index.to(device), graph.num_nodes)
    return GraphBatch(x=compact(graph.x.to(device)), edges=edges, y=graph.y.to(device))


def ragged(sizes: Tensor, chosen: Tensor) -> Tensor:
    """Positions of the members of the chosen groups, group after group."""
    begin = sizes.cumsum(0) - sizes
    size = sizes[chosen]
    shift = begin[chosen] - (size.cumsum(0) - size)
    total = torch.arange(int(size.sum()))
    return total + shift.repeat_interleave(size)
