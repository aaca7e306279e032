"""The last step of every reader: canonical graphs and names, put together as a Dataset."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.cleaning import DEGREE_FEATURES, clean
from vepm.data.dataset import Dataset
from vepm.data.labels import encode_integers
from vepm.tasks import Masks


def node_dataset(
    data: Data,
    *,
    name: str,
    source: str,
    class_names: Sequence[str],
    feature_names: Sequence[str] | None = None,
    node_names: Sequence[str] | None = None,
    splits: tuple[Masks, ...] | None = None,
) -> Dataset:
    """A node task from one graph whose labels are class indices already."""
    if data.x is None:
        feature_names = DEGREE_FEATURES
    return Dataset(
        name=name,
        task="node",
        graphs=[clean(data, source=source)],
        num_classes=len(class_names),
        class_names=tuple(class_names),
        feature_names=None if feature_names is None else tuple(feature_names),
        node_names=None if node_names is None else (tuple(node_names),),
        splits=splits,
        source=source,
    )


def split_union(x: Tensor, edge_index: Tensor, batch: Tensor, y: Tensor) -> list[Data]:
    """The graphs of a disjoint union.

    Args:
        x: features [N, F] of all nodes, graph after graph.
        edge_index: canonical edges [2, E] of the union.
        batch: the graph of each node [N], in non-decreasing order.
        y: class index of each graph [G].
    """
    num_graphs = y.numel()
    num_nodes = torch.bincount(batch, minlength=num_graphs)
    first = num_nodes.cumsum(0) - num_nodes
    # Sorted by destination, the edges of a graph stand together as its nodes do.
    owner = batch[edge_index[1]]
    num_edges = torch.bincount(owner, minlength=num_graphs).tolist()
    edges = (edge_index - first[owner]).split(num_edges, dim=1)
    rows = x.split(num_nodes.tolist())
    # Clones, so that keeping or saving one graph does not keep them all.
    return [
        Data(x=rows[i].clone(), edge_index=edges[i].clone(), y=y[i : i + 1].clone())
        for i in range(num_graphs)
    ]


def recode(
    graphs: Sequence[Data], source: str, class_names: Sequence[str] | None
) -> tuple[str, ...]:
    """Turn the integer labels of graphs into class indices, in place; gives the class names."""
    labels = torch.cat([graph.y for graph in graphs])
    encoded, names = encode_integers(labels, source, class_names)
    parts = encoded.split([graph.y.numel() for graph in graphs])
    for graph, part in zip(graphs, parts, strict=True):
        graph.y = part.clone()
    return names
