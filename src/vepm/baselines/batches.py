"""Graphs put side by side, fast enough to do so anew in every step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.nn import Adjacency


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """One or several graphs as one, with which graph each node belongs to.

    Args:
        x: node features [N, F].
        edge_index: edges [2, E], both directions.
        batch: the graph of each node [N].
        num_graphs: number of graphs G.
    """

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    num_graphs: int

    @cached_property
    def adjacency(self) -> Adjacency:
        """The edges in the form that the weighted aggregation wants."""
        return Adjacency(self.edge_index, self.x.size(0))

    @cached_property
    def _filled_entries(self) -> Tensor:
        return self.x.flatten().nonzero().squeeze(1)

    def dropped_features(self, dropout: float) -> Tensor:
        """The features after dropout, drawn for their non-zero entries alone.

        Drawing for the zeros of a bag of words too would take most of the time of an epoch.
        """
        x = self.x.flatten()
        kept = torch.nn.functional.dropout(x[self._filled_entries], dropout)
        return torch.zeros_like(x).index_copy_(0, self._filled_entries, kept).view_as(self.x)


class PackedGraphs:
    """All graphs of a dataset end to end, from which any mini-batch is a few gathers.

    Args:
        graphs: the graphs.
        device: where they, and their batches, are to be.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from vepm.baselines.batches import PackedGraphs
        >>> pair = Data(x=torch.eye(2), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> PackedGraphs([pair, pair, pair]).take(torch.tensor([2, 0])).edge_index.tolist()
        [[0, 1, 2, 3], [1, 0, 3, 2]]
    """

    def __init__(self, graphs: Sequence[Data], device: torch.device | str = "cpu") -> None:
        self.x = torch.cat([graph.x for graph in graphs]).to(device)
        self.edge_index = torch.cat([graph.edge_index for graph in graphs], dim=1).to(device)
        self._nodes = _Runs([graph.x.size(0) for graph in graphs], device)
        self._edges = _Runs([graph.edge_index.size(1) for graph in graphs], device)

    def take(self, ids: Tensor) -> GraphBatch:
        """The batch of these graphs, in this order."""
        node, batch, first_node = self._nodes.gather(ids)
        edge, graph_of_edge, _ = self._edges.gather(ids)
        edge_index = self.edge_index[:, edge] + first_node[graph_of_edge]
        return GraphBatch(self.x[node], edge_index, batch, ids.numel())


class _Runs:
    """Where the run of entries of each graph begins, and how long it is."""

    def __init__(self, sizes: Sequence[int], device: torch.device | str) -> None:
        # On the host, so that no step waits for a GPU to learn how long its batch is.
        self.sizes = torch.tensor(sizes)
        self.starts = self.sizes.cumsum(0) - self.sizes
        self.device = device

    def gather(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Entries of the chosen runs, the run of each, and where each run now begins."""
        sizes = self.sizes[ids]
        begins = sizes.cumsum(0) - sizes
        total, moved = int(sizes.sum()), self._placed(self.starts[ids] - begins)
        owner = torch.repeat_interleave(self._placed(sizes), output_size=total)
        entries = torch.arange(total, device=self.device)
        return entries + moved[owner], owner, self._placed(begins)

    def _placed(self, values: Tensor) -> Tensor:
        return values.to(self.device, non_blocking=True)
