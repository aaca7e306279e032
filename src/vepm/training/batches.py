"""Graphs as the training loop sees them: on the device, joined, with their edges sorted once."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.nn import Adjacency, compact
from vepm.nn.features import Features


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

    def select(self, graphs: Tensor) -> GraphBatch:
        """Join the graphs with the given numbers [G], in that order."""
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
