"""Graphs on a device, joined into batches, with their edges sorted once."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from vepm.data.scaling import edge_weights
from vepm.errors import InputError
from vepm.kernels.features import Features
from vepm.kernels.patterns import ragged
from vepm.nn import Adjacency, compact
from vepm.objective import Counts, edge_log_likelihood, masked, subsampled_edge_log_likelihood

GRAPHS_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """One graph, or several joined into one: everything that a step reads."""

    x: Features  # of the nodes [N, F]
    edges: Adjacency  # in both directions
    y: Tensor  # labels of the nodes [N] or graphs [G]; -1 where unknown
    batch: Tensor | None = None  # graph of each node [N]; None for a single graph
    num_graphs: int = 1
    counts: Counts | None = None  # of the whole step, if this is a process's share of it
    node_mask: Tensor | None = None  # true for nodes that are not padding [N]; None without padding
    graph_mask: Tensor | None = None  # the same for graphs [G]

    def count(self, rows: Tensor) -> Counts:
        """What to divide sums by, given the labelled rows."""
        if self.node_mask is not None and self.graph_mask is not None:
            graphs = self.graph_mask
            return Counts(self.node_mask.sum(), graphs[rows].sum(), graphs.sum())
        return self.counts or Counts(self.x.size(0), rows.numel(), self.num_graphs)

    def edge_log_likelihood(
        self, z: Tensor, mean: Tensor, activation: Tensor, likelihood: str, directed: bool = False
    ) -> Tensor:
        """Log-likelihood of the edges, given affiliations [N, C] and their posterior means."""
        given, count = (z, activation, self.edges, self.batch), self.num_graphs
        if likelihood == "subsampled":
            return subsampled_edge_log_likelihood(*given, count).sum()
        how: Any = {"balanced": likelihood != "summed", "mean": mean, "directed": directed}
        of_graphs = edge_log_likelihood(*given, num_graphs=count, **how)
        return masked(of_graphs, self.graph_mask).sum()


class GraphStore:
    """All graphs of a dataset joined on a device, from which batches are selected by index."""

    def __init__(self, graphs: Sequence[Data], device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.x = torch.cat([g.x for g in graphs]).to(device)
        self.edge_index = torch.cat([g.edge_index for g in graphs], dim=1).to(device)
        if any(g.get("directed") for g in graphs):
            raise InputError("only the nodes of a single graph can have directed links")
        weight = edge_weights(graphs)
        self.weight = None if weight is None else weight.to(device)
        self.y = torch.cat([g.y for g in graphs]).to(device)
        # Sizes stay on the CPU, which plans the batches: reading them from a GPU would synchronise.
        sizes = [g.num_nodes for g in graphs], [g.edge_index.size(1) for g in graphs]
        self.sizes = torch.tensor(sizes)  # nodes and edges of each graph [2, G]
        self.starts = self.sizes.cumsum(1) - self.sizes  # index of the first of each

    def __len__(self) -> int:
        return self.sizes.size(1)

    def select(self, graphs: Tensor) -> GraphBatch:
        """Join the graphs with the given indices [G], in that order."""
        graphs = graphs.cpu()
        nodes, edges = self.sizes[:, graphs]
        first_node, first_edge = self.starts[:, graphs]
        node = ragged(first_node, nodes).to(self.device)
        edge = ragged(first_edge, edges).to(self.device)
        offset = (nodes.cumsum(0) - nodes).repeat_interleave(edges).to(self.device)
        weight = None if self.weight is None else self.weight[edge]
        return GraphBatch(
            x=self.x[node],
            edges=Adjacency(self.edge_index[:, edge] + offset, node.numel(), weight=weight),
            y=self.y[graphs.to(self.device)],
            batch=torch.arange(graphs.numel()).repeat_interleave(nodes).to(self.device),
            num_graphs=graphs.numel(),
        )

    @functools.cached_property
    def pieces(self) -> list[GraphBatch]:
        """All graphs in order, in batches that are joined once."""
        parts = torch.arange(len(self)).split(GRAPHS_AT_ONCE)
        # The features are in this order already.
        features = self.x.split([int(self.sizes[0, part].sum()) for part in parts])
        return [replace(self.select(p), x=x) for p, x in zip(parts, features, strict=True)]


def pieces(source: GraphBatch | GraphStore) -> list[GraphBatch]:
    """The source as batches for the model: a single graph whole, many graphs in groups."""
    return [source] if isinstance(source, GraphBatch) else source.pieces


def single_graph(graph: Data, device: torch.device | str = "cpu") -> GraphBatch:
    """A graph whose nodes are labelled, as one batch."""
    link, nodes, weight = graph.edge_index, graph.num_nodes, edge_weights([graph])
    if graph.get("directed"):
        # Messages pass both ways between the ends of a link.
        strength = torch.ones(link.size(1)) if weight is None else weight
        there = torch.stack([strength, torch.zeros_like(strength)], dim=1)
        both, arcs = torch.cat([link, link.flip(0)], dim=1), torch.cat([there, there.flip(1)])
        link, arcs = coalesce(both, arcs, num_nodes=nodes, sort_by_row=False)
        weight = None if weight is None else arcs.sum(1)
        edges = Adjacency(link, nodes, weight=weight, arcs=arcs)
    else:
        edges = Adjacency(link, nodes, kinds=graph.get("edge_kind"), weight=weight)
    return GraphBatch(x=compact(graph.x.to(device)), edges=edges.to(device), y=graph.y.to(device))
