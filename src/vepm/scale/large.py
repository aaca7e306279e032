"""One graph too large to train on at once: kept in main memory, read in parts."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.errors import InputError
from vepm.kernels.features import Features
from vepm.kernels.patterns import index_type
from vepm.nn import compact


class LargeGraph:
    """A graph in main memory, whose parts are moved to the device one at a time.

    Args:
        graph: Features, edges in canonical order, labels. Only the edges are copied, as smaller
            integers.
        device: Where parts are computed.
    """

    def __init__(self, graph: Data, device: torch.device | str = "cpu") -> None:
        self.x, self.y = graph.x, graph.y
        self.device = torch.device(device)
        self.num_nodes = int(graph.x.size(0))
        source, target = graph.edge_index
        self.columns = source.to(index_type(self.num_nodes))
        """The neighbours of each node in turn [E]."""
        self.degree = torch.bincount(target, minlength=self.num_nodes)
        self.pointer = torch.nn.functional.pad(self.degree.cumsum(0), (1, 0))
        """Offset of each node's neighbours [N + 1]."""
        self._index = torch.full((self.num_nodes,), -1, dtype=self.columns.dtype)

    @property
    def num_edges(self) -> int:
        """Directed edges."""
        return self.columns.numel()

    def features(self, nodes: Tensor) -> Features:
        """Features of some nodes, on the device."""
        if self.x.layout == torch.sparse_coo:
            return compact(self.x.index_select(0, nodes).coalesce().to(self.device))
        return compact(self.x[nodes].to(self.device))

    def edges_into(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Index of the target among the nodes, and the source, of every edge into them."""
        count = self.degree[nodes]
        place = torch.arange(nodes.numel()).repeat_interleave(count)
        shift = (self.pointer[:-1][nodes] - (count.cumsum(0) - count)).repeat_interleave(count)
        return place, self.columns[shift.add_(torch.arange(shift.numel()))]

    def inside(self, nodes: Tensor) -> Tensor:
        """Edges [2, e] between the nodes, relabelled in their order."""
        target, source = self.edges_into(nodes)
        local = self._relabelled(nodes)[source]
        self._index[nodes] = -1
        kept = local >= 0
        return torch.stack([local[kept].long(), target[kept]])

    def around(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes followed by their other neighbours, and all edges into the nodes."""
        target, source = self.edges_into(nodes)
        outside = torch.zeros(self.num_nodes, dtype=torch.bool)
        outside[source] = True
        outside[nodes] = False
        everyone = torch.cat([nodes, outside.nonzero().flatten()])
        edges = torch.stack([self._relabelled(everyone)[source].long(), target])
        self._index[everyone] = -1
        return everyone, edges

    def _relabelled(self, nodes: Tensor) -> Tensor:
        self._index[nodes] = torch.arange(nodes.numel(), dtype=self._index.dtype)
        return self._index


def check_partition(scheme: str) -> None:
    """Refuse a split of the edges that depends on the whole graph."""
    if scheme in ("random", "kinds"):
        raise InputError(
            f"settings: partition {scheme} depends on the edges of the whole graph, and this one "
            "is trained by clusters; use learned or even"
        )
