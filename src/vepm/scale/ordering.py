"""An order of the nodes of a large graph in which neighbours are close together.

A sum over neighbours reads rows from all over memory. Once these no longer fit a CPU's cache, most
of the time goes into waiting for them, unless they are next to rows that were just read. The model
does not depend on the order of the nodes, so it may be trained in any.
"""

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from vepm.scale.clustering import cluster_nodes
from vepm.scale.large import LargeGraph

ROWS_IN_CACHE = 2**16
"""About how many nodes' rows a cache holds."""


def worth_ordering(graph: Data, device: torch.device | str) -> bool:
    """Whether a graph is so large that the order of its nodes matters for speed."""
    large = int(graph.num_nodes or 0) > 2 * ROWS_IN_CACHE
    # Kinds belong to edges in the order they have.
    return large and "edge_kind" not in graph and torch.device(device).type == "cpu"


def good_order(graph: Data) -> Tensor:
    """Indices of the nodes [N], in clusters of about as many as a cache holds.

    Args:
        graph: Its edges in both directions, sorted by target.

    Example:
        >>> graph = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[1, 0], [0, 1]]))
        >>> good_order(graph).tolist()
        [0, 1]
    """
    neighbours = LargeGraph(graph)
    count = -(-neighbours.num_nodes // ROWS_IN_CACHE)
    cluster = cluster_nodes(neighbours.pointer.numpy(), neighbours.columns.numpy(), count)
    return torch.from_numpy(cluster).argsort(stable=True)


def in_order(graph: Data, order: Tensor) -> Data:
    """The same graph with its nodes, and all that belongs to them, in another order.

    Args:
        graph: The graph.
        order: Indices of the nodes in the new order [N].
    """
    place = places(order)
    edges = coalesce(place[graph.edge_index], num_nodes=order.numel(), sort_by_row=False)
    moved = {name: _rows(value, order) for name, value in graph if graph.is_node_attr(name)}
    return Data(**moved, edge_index=edges)


def places(order: Tensor) -> Tensor:
    """Position of each node in an order [N].

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
