"""Networks over many graphs, trained as GIN is, and how they read nodes out."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch_geometric.nn import global_add_pool, global_mean_pool

from vepm.baselines.base import Labelled, scored
from vepm.baselines.neural import NeuralBaseline, Problem
from vepm.data import Dataset
from vepm.evaluation import Curve, Split
from vepm.schema import checked
from vepm.training import GraphBatch, GraphStore

EVALUATION_BATCH = 512
POOLING = {"sum": global_add_pool, "mean": global_mean_pool}
FEWEST = 10  # nodes that convolutions over nodes in an order need


class GraphBaseline(NeuralBaseline):
    """A network over many graphs, trained in mini-batches as GIN is; it never stops early.

    The learning rate is halved every ``halve_every`` epochs. Every layer is equally wide.
    """

    task = "graph"
    epochs: int = checked(350, low=1)
    weight_decay: float = checked(0.0, low=0)
    batch_size: int = checked(32, low=1)
    halve_every: int = checked(50, low=1)
    hidden_channels: int = checked(32, low=1)

    def problem(self, dataset: Dataset, split: Split) -> Problem:
        """Graphs, in random mini-batches of about equal size."""
        graphs, count = GraphStore(dataset.graphs, self.device), split.train.numel()

        def labelled(ids: Tensor) -> Labelled:
            labels = dataset.labels[ids].to(self.device, non_blocking=True)
            return Labelled(graphs.select(ids), slice(None), labels)

        def training(generator: torch.Generator) -> Iterable[Labelled]:
            order = torch.randperm(count, generator=generator)
            return map(labelled, split.train[order].tensor_split(-(-count // self.batch_size)))

        batches, known, read = [], {}, 0
        for name, part in scored(split).items():
            batches += [graphs.select(ids) for ids in part.split(EVALUATION_BATCH)]
            rows = torch.arange(read, read + part.numel(), device=self.device)
            known[name] = rows, dataset.labels[part].to(self.device)
            read += part.numel()
        return Problem(training, batches, known, halve_every=self.halve_every)


class PooledBaseline(GraphBaseline):
    """A network over graphs whose nodes are added up or averaged."""

    pooling: str = checked("sum", choices=("sum", "mean"))


class Readout(nn.Module):
    """Class scores from the pooled nodes of every layer, the input's included."""

    def __init__(self, widths: list[int], out_channels: int, settings: PooledBaseline) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(width, out_channels) for width in widths)
        self.pool, self.dropout = POOLING[settings.pooling], settings.dropout

    def forward(self, layers: list[Tensor], graph: GraphBatch) -> Tensor:
        """Scores [G, classes] of the graphs, given the nodes of every layer."""
        scores = []
        for head, x in zip(self.heads, layers, strict=True):
            found = head(self.pool(x, graph.batch, graph.num_graphs))
            scores.append(dropout(found, self.dropout, self.training))
        return torch.stack(scores).sum(dim=0)


class SortedBaseline(GraphBaseline):
    """A network that reads equally many nodes of every graph, in an order.

    Without a number of them, it is the one that 60 % of the graphs have, ten at least.
    """

    learning_rate: float = checked(1e-3, above=0)
    num_nodes: int | None = checked(None, low=FEWEST)

    def fit(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, dict[str, Tensor]]:
        """Train a fresh network, once it is known how many nodes to read."""
        if self.num_nodes is not None:
            return super().fit(dataset, split, seed)
        sizes = torch.tensor([float(graph.num_nodes) for graph in dataset.graphs])
        kept = max(FEWEST, int(sizes.quantile(0.4)))
        return replace(self, num_nodes=kept).fit(dataset, split, seed)
