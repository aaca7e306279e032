"""Baselines that weigh neighbours by attention, beside GAT on nodes."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import dropout
from torch_geometric.nn import models

from vepm.baselines.base import PooledBaseline
from vepm.baselines.fitting import Classifier
from vepm.baselines.graphs import POOLING
from vepm.kernels.features import dense
from vepm.schema import checked
from vepm.training import GraphBatch


class _GraphGATNetwork(Classifier):
    def __init__(self, in_channels: int, out_channels: int, settings: "GraphGAT") -> None:
        super().__init__()
        width, depth = settings.hidden_channels, settings.num_layers
        options = {"heads": settings.heads, "act": "elu", "jk": "cat"}
        self.body = models.GAT(in_channels, width, depth, **options)
        self.head = nn.Linear(width, out_channels)
        self.pool, self.dropout = POOLING[settings.pooling], settings.dropout

    def forward(self, graph: GraphBatch) -> Tensor:
        x = self.body(dense(graph.x), graph.edges.edge_index)
        pooled = self.pool(x, graph.batch, graph.num_graphs)
        return self.head(dropout(pooled, self.dropout, self.training))


@dataclass(frozen=True, kw_only=True)
class GraphGAT(PooledBaseline):
    """Veličković et al. (2018) on graphs: layers of attention, joined, pooled and read linearly.

    Args:
        num_layers: layers of attention.
        heads: attention heads of every layer; must divide ``hidden_channels``.
    """

    network = _GraphGATNetwork
    name: str = "graph-gat"
    learning_rate: float = checked(0.005, above=0)
    hidden_channels: int = checked(64, low=1)
    num_layers: int = checked(4, low=1)
    heads: int = checked(8, low=1)
