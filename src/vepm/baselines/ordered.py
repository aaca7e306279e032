"""Nodes in an order, read by a 1-D CNN: DGCNN and PATCHY-SAN."""

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np
import torch
from scipy.sparse.csgraph import shortest_path
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv, SortAggregation
from torch_geometric.utils import to_networkx

from vepm.baselines.base import Classifier
from vepm.baselines.graphs import FEWEST, SortedBaseline
from vepm.baselines.neural import Problem
from vepm.data import Dataset
from vepm.data.scaling import standardised
from vepm.evaluation import Split
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch


class _SortedNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "DGCNN") -> None:
        super().__init__()
        kept, hidden = settings.num_nodes or FEWEST, settings.hidden_channels
        widths = [in_channels] + [hidden] * settings.num_layers + [1]
        self.projections = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.mean = SimpleConv("mean", combine_root="self_loop")
        self.sort, total = SortAggregation(kept), sum(widths[1:])
        self.read = nn.Sequential(
            nn.Conv1d(1, 16, total, total),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(16, 32, 5),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * (kept // 2 - 4), 128),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(128, out_channels),
        )

    def forward(self, graph: GraphBatch) -> Tensor:
        layers = [dense(graph.x)]
        for project in self.projections:
            layers.append(self.mean(project(layers[-1]), graph.edges.edge_index).tanh())
        rows = self.sort(torch.cat(layers[1:], dim=1), graph.batch, dim_size=graph.num_graphs)
        return self.read(rows.unsqueeze(1))


class DGCNN(SortedBaseline):
    """Zhang et al. (2018): means over neighbours, nodes sorted by the last layer, and a 1-D CNN.

    One layer beyond ``num_layers`` gives the channel that sorts.
    """

    network = _SortedNetwork
    name: str = "dgcnn"
    num_layers: int = checked(3, low=1)


def receptive_fields(graph: Data, num_nodes: int, field_size: int) -> Tensor:
    """Features of the neighbourhoods of the most central nodes [num_nodes, field_size, F].

    Nodes are ranked by PageRank, ties by their features. A field has a node first and then those
    nearest to it, by rank where they are equally near; what is missing is zero.
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


class PatchySan(SortedBaseline):
    """Niepert et al. (2016): neighbourhoods of the most central nodes, in order, and a 1-D CNN."""

    network = _FieldNetwork
    name: str = "patchy-san"
    hidden_channels: int = checked(128, low=1)
    field_size: int = checked(10, low=1)

    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """Graphs whose nodes are those of the neighbourhoods, one after the other."""
        nothing, size = torch.empty(2, 0, dtype=torch.long), (self.num_nodes or 0, self.field_size)
        scaled = standardised(dataset).graphs  # before what is missing in a field becomes zero
        fields = [receptive_fields(graph, *size).flatten(0, 1) for graph in scaled]
        pairs = zip(fields, scaled, strict=True)
        graphs = [Data(x=x, edge_index=nothing, y=graph.y) for x, graph in pairs]
        return super().problem(replace(dataset, graphs=graphs), split)
