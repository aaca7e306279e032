"""Graphs on a device, joined into batches, with their edges sorted once."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from vepm.errors import InputError
from vepm.kernels.features import Features
from vepm.nn import Adjacency, compact
from vepm.objective import Counts, edge_log_likelihood, subsampled_edge_log_likelihood


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """One graph, or several joined into one; all that a step reads."""

    x: Features
    """Node features [N, F]."""
    edges: Adjacency
    """Edges in both directions."""
    y: Tensor
    """Labels of the nodes [N] or graphs [G]; -1 where unknown."""
    batch: Tensor | None = None
    """Graph of each node [N]; None for a single graph."""
    num_graphs: int = 1
    counts: Counts | None = None
    """Counts of the whole step if this is one of its shares."""

    def count(self, rows: Tensor) -> Counts:
        """What to divide sums by, given the labelled rows."""
        return self.counts or Counts(self.x.size(0), rows.numel(), self.num_graphs)

    def keep_nodes(self, values: Tensor) -> Tensor:
        """Values of nodes [N, ...], zero for padding; there is none here."""
        return values

    def keep_outputs(self, values: Tensor) -> Tensor:
        """Values of what is labelled [n, ...], zero for padding; there is none here."""
        return values

    def edge_log_likelihood(
        self, z: Tensor, mean: Tensor, activation: Tensor, likelihood: str, directed: bool = False
    ) -> Tensor:
        """Log-likelihood of the edges, summed over the graphs.

        Given affiliations [N, C] and their posterior means [N, C].
        """
        given, count = (z, activation, self.edges, self.batch), self.num_graphs
        if likelihood == "subsampled":
            return subsampled_edge_log_likelihood(*given, balanced=True, num_graphs=count).sum()
        balanced = likelihood != "summed"
        of_graphs = edge_log_likelihood(
            *given, balanced=balanced, mean=mean, num_graphs=count, directed=directed
        )
        return self.keep_outputs(of_graphs).sum()


GRAPHS_AT_ONCE = 512
HEAVY_TAIL = 100  # largest weight over the median, beyond which logarithms of weights are taken


class GraphStore:
    """All graphs of a dataset concatenated on a device, from which batches are selected by index.

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
        if any(g.get("directed") for g in graphs):
            raise InputError("only the nodes of a single graph can have directed links")
        weights = edge_weights(graphs)
        self.weight = None if weights is None else torch.cat(weights).to(device)
        self.y = torch.cat([g.y for g in graphs]).to(device)
        # Sizes stay on the CPU, which plans the batches: reading them from a GPU would synchronise.
        self.nodes = torch.tensor([g.num_nodes for g in graphs])
        self.edges = torch.tensor([g.edge_index.size(1) for g in graphs])

    def __len__(self) -> int:
        return self.nodes.numel()

    def select(self, graphs: Tensor, counts: Counts | None = None) -> GraphBatch:
        """Join the graphs with the given indices [G], in that order.

        The counts are those of the whole step if these graphs are a share of it.
        """
        graphs = graphs.cpu()
        nodes, edges = self.nodes[graphs], self.edges[graphs]
        node = ragged((self.nodes.cumsum(0) - self.nodes)[graphs], nodes).to(self.device)
        edge = ragged((self.edges.cumsum(0) - self.edges)[graphs], edges).to(self.device)
        offset = (nodes.cumsum(0) - nodes).repeat_interleave(edges).to(self.device)
        weight = None if self.weight is None else self.weight[edge]
        return GraphBatch(
            x=self.x[node],
            edges=Adjacency(self.edge_index[:, edge] + offset, node.numel(), weight=weight),
            y=self.y[graphs.to(self.device)],
            batch=torch.arange(graphs.numel()).repeat_interleave(nodes).to(self.device),
            num_graphs=graphs.numel(),
            counts=counts,
        )

    @functools.cached_property
    def pieces(self) -> list[GraphBatch]:
        """All graphs in order, in batches that are joined once."""
        parts = torch.arange(len(self)).split(GRAPHS_AT_ONCE)
        # The features are in this order already.
        features = self.x.split([int(self.nodes[part].sum()) for part in parts])
        found = zip(parts, features, strict=True)
        return [replace(self.select(part), x=x) for part, x in found]

    def share(self, graphs: Tensor, rank: int, size: int) -> GraphBatch:
        """The share of one of ``size`` processes in the graphs with the given indices."""
        if size == 1:
            return self.select(graphs)
        nodes, count = int(self.nodes[graphs].sum()), graphs.numel()
        return self.select(graphs.tensor_split(size)[rank], Counts(nodes, count, count))


def pieces(source: GraphBatch | GraphStore) -> list[GraphBatch]:
    """The source in batches for the model: a graph at once, graphs some at a time."""
    return [source] if isinstance(source, GraphBatch) else source.pieces


def single_graph(graph: Data, device: torch.device | str = "cpu") -> GraphBatch:
    """A graph whose nodes are labelled, as one batch."""
    weights = edge_weights([graph])
    weight = None if weights is None else weights[0]
    if graph.get("directed"):
        edges = _both_ways(graph.edge_index, graph.num_nodes, weight)
    else:
        kinds = graph.get("edge_kind")
        edges = Adjacency(graph.edge_index, graph.num_nodes, kinds=kinds, weight=weight)
    return GraphBatch(x=compact(graph.x.to(device)), edges=edges.to(device), y=graph.y.to(device))


def _both_ways(link: Tensor, nodes: int, weight: Tensor | None) -> Adjacency:
    """The links of a directed graph with their reverses, between which messages pass both ways."""
    strength = torch.ones(link.size(1)) if weight is None else weight
    none = torch.zeros_like(strength)
    arcs = torch.cat([torch.stack([strength, none], 1), torch.stack([none, strength], 1)])
    both = torch.cat([link, link.flip(0)], dim=1)
    edge_index, arcs = coalesce(both, arcs, num_nodes=nodes, sort_by_row=False)
    weight = None if weight is None else arcs.sum(1)
    return Adjacency(edge_index, nodes, weight=weight, arcs=arcs)


def edge_weights(graphs: Sequence[Data]) -> list[Tensor] | None:
    """Weights of the edges of each graph [E], as the likelihood takes them; None if there are none.

    Counts stay as they are, other weights are divided by their mean. Where the largest weight is
    more than a hundred times the median, few edges would make up most of the likelihood; such
    weights are first replaced by their logarithms, log2(1 + w) in units of the smallest.
    """
    given = [graph.get("edge_weight") for graph in graphs]
    found = [weight for weight in given if weight is not None]
    if not found:
        return None
    if len(found) < len(given):
        raise InputError("some graphs have weights on their edges and some have none")
    whole = torch.cat(found)
    if whole.numel() and whole.max() > HEAVY_TAIL * whole.median():
        found = [torch.log2(1 + weight / whole.min()) for weight in found]
        whole = torch.cat(found)
    counts = bool((whole == whole.round()).all())
    return found if counts else [weight / whole.mean() for weight in found]


def ragged(begin: Tensor, size: Tensor) -> Tensor:
    """Positions of the members of groups, group after group, given each one's first and size."""
    shift = (begin - (size.cumsum(0) - size)).repeat_interleave(size)
    return shift.add_(torch.arange(shift.numel()))
