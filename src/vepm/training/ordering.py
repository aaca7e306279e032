"""Nodes of a large graph put in an order in which neighbours stand close together.

A sum over neighbours reads rows from all over memory. Once these no longer fit a processor's
cache, most of its time goes by in waiting for them, unless they lie where others were just read.
The model does not know its nodes by their numbers, so it may be trained in any order.
"""

import dataclasses

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from vepm.training.batches import single_graph
from vepm.training.config import ModelConfig
from vepm.training.large import LargeGraph
from vepm.training.partition import cluster_nodes
from vepm.training.state import Examples

ROWS_AT_HAND = 2**16
"""Nodes whose rows a cache holds, about."""


def worth_ordering(graph: Data, config: ModelConfig, device: torch.device | str) -> bool:
    """Whether a graph is so large that the order of its nodes tells, and any will do."""
    by_number = config.partition == "random" or config.inputs == "random"
    large = int(graph.num_nodes or 0) > 2 * ROWS_AT_HAND
    return large and not by_number and torch.device(device).type == "cpu"


def good_order(graph: Data) -> Tensor:
    """Numbers of the nodes [N], cluster by cluster of about as many as a cache holds.

    Args:
        graph: Its edges in both directions, those into a node side by side.

    Example:
        >>> graph = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[1, 0], [0, 1]]))
        >>> good_order(graph).tolist()
        [0, 1]
    """
    neighbours = LargeGraph(graph)
    count = -(-neighbours.num_nodes // ROWS_AT_HAND)
    cluster = cluster_nodes(neighbours.pointer.numpy(), neighbours.columns.numpy(), count)
    return torch.from_numpy(cluster).argsort(stable=True)


def in_order(graph: Data, order: Tensor) -> Data:
    """The same graph with its nodes numbered in another order; their labels, edges and masks too.

    Args:
        graph: The graph.
        order: Present number of each node [N].
    """
    place = places(order)
    edges = coalesce(place[graph.edge_index], num_nodes=order.numel(), sort_by_row=False)
    moved = {name: _rows(value, order) for name, value in graph if graph.is_node_attr(name)}
    return Data(**moved, edge_index=edges)


def examples_in_order(examples: Examples, graph: Data) -> Examples:
    """What to learn from, the nodes of its one graph in a good order."""
    order = good_order(graph)
    place = places(order)
    return dataclasses.replace(
        examples,
        source=single_graph(in_order(graph, order)),
        train=place[examples.train],
        val=place[examples.val],
        test=None if examples.test is None else place[examples.test],
    )


def places(order: Tensor) -> Tensor:
    """Where each node stands in an order [N].

    Example:
        >>> places(torch.tensor([2, 0, 1])).tolist()
        [1, 2, 0]
    """
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel())
    return place


def _rows(values: Tensor, order: Tensor) -> Tensor:
    if values.layout == torch.sparse_coo:
        return values.index_select(0, order).coalesce()
    return values[order]
