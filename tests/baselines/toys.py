"""Small tasks that every baseline should learn in seconds."""

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from vepm.data import Dataset, planted_graph
from vepm.evaluation import Split


def node_toy() -> Dataset:
    """Three planted communities whose features are a noisy bag of words."""
    return planted_graph(150, 3, average_degree=8, num_features=16, seed=0)


def cycle(num_nodes: int) -> Tensor:
    around = torch.arange(num_nodes)
    return to_undirected(torch.stack([around, (around + 1) % num_nodes]))


def star(num_nodes: int) -> Tensor:
    leaves = torch.arange(1, num_nodes)
    return to_undirected(torch.stack([torch.zeros_like(leaves), leaves]))


def graph_toy(num_graphs: int = 60) -> Dataset:
    """Cycles and stars: the stars are larger, and their first feature is more often one."""
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for i in range(num_graphs):
        label = i % 2
        size = 5 + 2 * label + int(torch.randint(4, (), generator=generator))
        marked = torch.rand(size, generator=generator) < 0.2 + 0.6 * label
        x = torch.stack([marked, ~marked], dim=1).float()
        edges = star(size) if label else cycle(size)
        graphs.append(Data(x=x, edge_index=edges, y=torch.tensor([label])))
    return Dataset("toy-graphs", "graph", graphs, 2, ("cycle", "star"))


def graph_split(num_graphs: int = 60) -> Split:
    order = torch.randperm(num_graphs, generator=torch.Generator().manual_seed(1))
    return Split("toy", *order.split([num_graphs // 2, num_graphs // 4, num_graphs // 4]))


def relabelled(dataset: Dataset, index: Tensor, label: int) -> Dataset:
    """The same dataset with every one of these nodes or graphs labelled alike."""
    graphs = [graph.clone() for graph in dataset.graphs]
    if dataset.task == "node":
        graphs[0].y[index] = label
    else:
        for i in index.tolist():
            graphs[i].y = torch.tensor([label])
    return Dataset(dataset.name, dataset.task, graphs, dataset.num_classes, dataset.class_names)
