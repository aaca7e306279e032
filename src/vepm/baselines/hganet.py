"""hGANet: attention to the best few neighbours alone, on nodes and on graphs."""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu
from torch_geometric.nn import GCNConv, TopKPooling
from torch_geometric.nn.pool.select.topk import topk
from torch_geometric.utils import scatter, softmax

from vepm.baselines.base import Classifier
from vepm.baselines.graphs import POOLING, PooledBaseline
from vepm.baselines.nodes import NodeBaseline
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch


class HardAttention(nn.Module):
    r"""Attention to the few neighbours that a projection ranks highest; the node itself is added.

    .. math:: y = |X p| / \lVert p \rVert_2, \quad
        h_i = x_i + \sum_{j \in \mathrm{top}_k(i)} \mathrm{softmax}_j (x_i^\top g_j) \, g_j, \quad
        g_j = \sigma(y_j) \, x_j
    """

    def __init__(self, channels: int, num_neighbours: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(channels) / channels**0.5)
        self.num_neighbours = num_neighbours

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Nodes [N, channels] after attention to their best neighbours."""
        score = (x @ self.direction).abs() / self.direction.norm()
        sent, (source, target) = x * score.sigmoid()[:, None], edge_index
        if source.numel():
            kept = topk(score[source], self.num_neighbours, target)
            source, target = source[kept], target[kept]
        match = softmax((x[target] * sent[source]).sum(1), target, num_nodes=x.size(0))
        return x + scatter(match[:, None] * sent[source], target, dim_size=x.size(0))


class _HardNetwork(Classifier):
    def __init__(
        self, in_channels: int, out_channels: int, settings: "HGANet | GraphHGANet"
    ) -> None:
        super().__init__()
        width, depth = settings.hidden_channels, range(settings.num_layers)
        self.embed = GCNConv(in_channels, width)
        self.attend = nn.ModuleList(HardAttention(width, settings.num_neighbours) for _ in depth)
        self.convolve = nn.ModuleList(GCNConv(width, width) for _ in depth)
        self.head: nn.Module = GCNConv(width * (settings.num_layers + 1), out_channels)
        self.settings = settings

    def forward(self, graph: GraphBatch) -> Tensor:
        edges, rate = graph.edges.edge_index, self.settings.dropout
        layers = [self.embed(dropout(dense(graph.x).to_dense(), rate, self.training), edges)]
        for attend, convolve in zip(self.attend, self.convolve, strict=True):
            x = dropout(attend(layers[-1], edges), rate, self.training)
            layers.append(elu(convolve(x, edges)))
        return self.head(dropout(torch.cat(layers, 1), rate, self.training), edges)


class HGANet(NodeBaseline):
    """Gao and Ji (2019): attention to a few neighbours alone, each followed by a convolution."""

    network = _HardNetwork
    name: str = "hganet"
    patience: int | None = 100
    hidden_channels: int = checked(48, low=1)
    num_layers: int = checked(2, low=1)
    num_neighbours: int = checked(8, low=1)


class _GraphHardNetwork(_HardNetwork):
    def __init__(self, in_channels: int, out_channels: int, settings: "GraphHGANet") -> None:
        super().__init__(in_channels, out_channels, settings)
        width, share = settings.hidden_channels, settings.kept_share
        self.shrink = nn.ModuleList(TopKPooling(width, share) for _ in self.attend)
        self.head = nn.Linear(width * (settings.num_layers + 1), out_channels)
        self.pool = POOLING[settings.pooling]

    def forward(self, graph: GraphBatch) -> Tensor:
        edges, batch, count = graph.edges.edge_index, graph.batch, graph.num_graphs
        x = self.embed(dense(graph.x), edges)
        pooled = [self.pool(x, batch, count)]
        for attend, convolve, shrink in zip(self.attend, self.convolve, self.shrink, strict=True):
            x = elu(convolve(attend(x, edges), edges))
            x, edges, _, batch, _, _ = shrink(x, edges, batch=batch)
            pooled.append(self.pool(x, batch, count))
        return self.head(dropout(torch.cat(pooled, 1), self.settings.dropout, self.training))


class GraphHGANet(PooledBaseline):
    """Gao and Ji (2019) on graphs: hard attention, a convolution, the best nodes kept, in turn."""

    network = _GraphHardNetwork
    name: str = "graph-hganet"
    learning_rate: float = checked(0.005, above=0)
    hidden_channels: int = checked(48, low=1)
    num_layers: int = checked(3, low=1)
    num_neighbours: int = checked(8, low=1)
    kept_share: float = checked(0.8, above=0, below=1)
