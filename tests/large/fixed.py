"""A model whose answers are a table, so that what a batch says of a node does not depend on it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Weibull
from torch_geometric.data import Data

from strategies import random_graph
from vepm.nn.encoder import Posterior
from vepm.nn.model import Prediction
from vepm.scale.ddp import ProcessGroup
from vepm.scale.large import Clusters, LargeGraph

NODES, COMMUNITIES, CLASSES = 23, 3, 4
TRAIN = torch.tensor([0, 3, 4, 9, 15, 21])


class Tabled(nn.Module):
    """Looks up its answers by the index of a node, which is the node's feature."""

    learns_grouping = False
    directed = False

    def __init__(self, matrix: bool = False) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(1)

        def table(width: int) -> nn.Parameter:
            return nn.Parameter(torch.rand(NODES, width, generator=random, dtype=torch.double))

        self.scale, self.shape = table(COMMUNITIES), table(COMMUNITIES)
        self.logits = table(CLASSES)
        self.activation = nn.Parameter(torch.tensor([0.3, 1.0, 2.0], dtype=torch.double))
        if matrix:
            square = torch.rand(COMMUNITIES, COMMUNITIES, generator=random, dtype=torch.double)
            self.activation = nn.Parameter(square)

    @property
    def interactions(self) -> Tensor:
        if self.activation.dim() == 1:
            return self.activation
        return self.activation + self.activation.mT

    def encode(self, x: Tensor, edges: Any) -> Weibull:
        rows = x[:, 0].long()
        return Posterior(self.scale[rows] + 0.1, self.shape[rows] + 1, validate_args=False)

    def split_edges(self, z: Tensor, edges: Any, batch: Tensor | None = None) -> Tensor:
        return z.new_zeros(0)

    def classify(self, x: Tensor, *rest: Any) -> Prediction:
        logits = self.logits[x[:, 0].long()]
        return Prediction(logits, logits, logits)


def numbered_graph() -> Data:
    """A graph whose only feature is the number of the node."""
    shape = random_graph(NODES, 0.3, seed=2)
    order = torch.argsort(shape.edge_index[1] * NODES + shape.edge_index[0])
    return Data(
        # One more than zero entries, or the features would be kept sparse.
        x=torch.arange(NODES, dtype=torch.double)[:, None].repeat(1, 2),
        edge_index=shape.edge_index[:, order],
        y=torch.arange(NODES) % CLASSES,
    )


def cut(graph: Data, count: int, group: ProcessGroup | None = None) -> Clusters:
    """The graph in five clusters, ``count`` of which are joined."""
    return Clusters(
        LargeGraph(graph),
        TRAIN,
        num_communities=COMMUNITIES,
        batch_size=-(-NODES * count // 5),
        group=group or ProcessGroup(),
        seed=0,
        joined=count,
    )
