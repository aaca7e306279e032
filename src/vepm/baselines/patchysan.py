"""PATCHY-SAN (Niepert et al., 2016): neighbourhoods in a canonical order, read by a 1-D CNN."""

from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
import torch
from scipy.sparse.csgraph import shortest_path
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import to_networkx

from vepm.baselines.dgcnn import FEWEST, SortedBaseline
from vepm.baselines.fitting import Classifier, Problem
from vepm.data import Dataset
from vepm.evaluation import Split
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch


def receptive_fields(graph: Data, num_nodes: int, field_size: int) -> Tensor:
    """Features of the neighbourhoods of the most central nodes [num_nodes, field_size, F].

    Nodes are ranked by PageRank, ties by their features. A field has a node first and then those
    nearest to it, by rank where they are equally near; what is missing is zero.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from vepm.baselines.patchysan import receptive_fields
        >>> path = Data(x=torch.tensor([[1.0], [2.0], [3.0]]),
        ...             edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> receptive_fields(path, 2, 3).squeeze(2).tolist()
        [[2.0, 3.0, 1.0], [3.0, 2.0, 1.0]]
    """
    x = graph.x.numpy()
    network = to_networkx(Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes))
    centrality = np.array(list(nx.pagerank(network).values())).round(5)
    order = np.lexsort([*x.T, centrality])[::-1]
    links = nx.to_scipy_sparse_array(network, nodelist=order)
    distance = shortest_path(links, unweighted=True, indices=np.arange(len(order))[:num_nodes])
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :field_size]
    reached = np.isfinite(np.take_along_axis(distance, nearest, axis=1))
    fields = np.zeros((num_nodes, field_size, x.shape[1]), dtype=x.dtype)
    fields[: len(nearest), : nearest.shape[1]] = x[order[nearest]] * reached[:, :, None]
    return torch.from_numpy(fields)


class _FieldNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "PatchySan") -> None:
        super().__init__()
        kept, size = settings.num_nodes or FEWEST, settings.field_size
        self.read = nn.Sequential(
            nn.Conv1d(in_channels, 16, size, size),
            nn.ReLU(),
            nn.Conv1d(16, 8, FEWEST),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * (kept - FEWEST + 1), settings.hidden_channels),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden_channels, out_channels),
        )

    def forward(self, graph: GraphBatch) -> Tensor:
        x = dense(graph.x)
        return self.read(x.view(graph.num_graphs, -1, x.size(1)).transpose(1, 2))


@dataclass(frozen=True, kw_only=True)
class PatchySan(SortedBaseline):
    """Niepert et al. (2016): neighbourhoods of the most central nodes, in order, and a 1-D CNN.

    Nodes are ranked by PageRank, and their number is found as DGCNN finds it.

    Args:
        field_size: nodes of a neighbourhood.
    """

    network = _FieldNetwork
    name: str = "patchy-san"
    learning_rate: float = checked(1e-3, above=0)
    hidden_channels: int = checked(128, low=1)
    field_size: int = checked(10, low=1)

    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """Graphs whose nodes are those of the neighbourhoods, one after the other."""
        nothing, size = torch.empty(2, 0, dtype=torch.long), (self.num_nodes or 0, self.field_size)
        fields = [receptive_fields(graph, *size).flatten(0, 1) for graph in dataset.graphs]
        pairs = zip(fields, dataset.graphs, strict=True)
        graphs = [Data(x=x, edge_index=nothing, y=graph.y) for x, graph in pairs]
        return super().problem(replace(dataset, graphs=graphs), split)
