"""Graphs as the training loop sees them: on the device, joined, with their edges sorted once."""

from collections.abc import Sequence
from dataclasses import dataclass

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
        self.nodes = torch.tensor([g.num_nodes for g in graphs], device=device)
        self.edges = torch.tensor([g.edge_index.size(1) for g in graphs], device=device)

    def __len__(self) -> int:
        return self.nodes.numel()

    def select(self, graphs: Tensor) -> GraphBatch:
        """Join the graphs with the given numbers [G], in that order."""
        graphs = graphs.to(self.device)
        nodes, edges = self.nodes[graphs], self.edges[graphs]
        node = _ragged(self.nodes, graphs)
        edge = _ragged(self.edges, graphs)
        offset = (nodes.cumsum(0) - nodes).repeat_interleave(edges)
        position = torch.arange(graphs.numel(), device=self.device)
        return GraphBatch(
            x=self.x[node],
            edges=Adjacency(self.edge_index[:, edge] + offset, node.numel()),
            y=self.y[graphs],
            batch=position.repeat_interleave(nodes),
            num_graphs=graphs.numel(),
        )


def single_graph(graph: Data, device: torch.device | str = "cpu") -> GraphBatch:
    """A graph whose nodes are labelled, as one batch."""
    edges = Adjacency(graph.edge_index.to(device), graph.num_nodes)
    return GraphBatch(x=compact(graph.x.to(device)), edges=edges, y=graph.y.to(device))


def _ragged(sizes: Tensor, chosen: Tensor) -> Tensor:
    """Positions of the members of the chosen groups, group after group."""
    begin = sizes.cumsum(0) - sizes
    size = sizes[chosen]
    shift = begin[chosen] - (size.cumsum(0) - size)
    total = torch.arange(int(size.sum()), device=sizes.device)
    return total + shift.repeat_interleave(size)
