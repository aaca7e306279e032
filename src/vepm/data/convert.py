"""Graphs already in memory, whatever library made them."""

from collections.abc import Iterable, Sequence
from typing import Any

import networkx as nx
import torch
from torch_geometric.data import Batch, Data, HeteroData

from vepm.data import networkx_graphs
from vepm.data.arrays import from_matrices
from vepm.data.assemble import node_dataset, recode
from vepm.data.cleaning import DEGREE_FEATURES, clean, count_nodes
from vepm.data.columns import in_order
from vepm.data.dataset import Dataset
from vepm.data.labels import encode_text
from vepm.data.masks import several_splits
from vepm.data.positions import with_positions
from vepm.data.sparse import refuse_sparse
from vepm.errors import InputError
from vepm.tasks import TASKS, UNLABELLED, Task, TaskName, task_named

_ACCEPTED = (
    "a PyG Data (or a list or dataset of them), a NetworkX graph (or a list), "
    "or a tuple (X, A, y) with a SciPy sparse A"
)


def as_dataset(
    obj: Any,
    task: TaskName | None = None,
    *,
    class_names: Sequence[str] | None = None,
    name: str = "data",
    strict: bool = False,
) -> Dataset:
    """Check graphs in memory and put them in canonical form.

    Labels may be any integers from 0 or any names; class indices follow their order and
    ``class_names`` keeps them. Nodes and graphs labelled -1 are unlabelled, as are NetworkX nodes
    without a ``label``. Without a ``train_mask`` all labelled nodes that no other mask holds are
    for training. Graphs without features get a constant and log(1 + degree), and, where nodes are
    labelled, 16 spectral coordinates.

    Args:
        obj: a PyG ``Data``, a list or dataset of them, a NetworkX graph or a list of them (labels
            in ``graph.graph["label"]``), a tuple ``(X, A)`` or ``(X, A, y)`` with A a SciPy sparse
            or dense matrix, X an array or data frame, and X, y perhaps None, or a
            :class:`Dataset`, given back as it is.
        task: ``"node"`` or ``"graph"``; without it one graph is a node task unless it has a single
            label for its many nodes, and several graphs are a graph task.
        class_names: the classes of a fitted model, so that indices agree with it; found from the
            labels if not given.
        name: what to call the data in messages and reports.
        strict: refuse self-loops, duplicates and one-way edges instead of mending them.

    Raises:
        InputError: saying what is wrong and how to mend it.

    Example:
        >>> import networkx as nx
        >>> from vepm.data import as_dataset
        >>> dataset = as_dataset(nx.path_graph(3))
        >>> dataset.graphs[0].edge_index.tolist()
        [[1, 0, 2, 1], [0, 1, 1, 2]]
    """
    wanted = None if task is None else task_named(task)
    if isinstance(obj, Dataset):
        if task not in (None, obj.task):
            raise InputError(f"{obj.name} is a {obj.task} task, not a {task} task; use the other")
        return obj
    if _is_matrices(obj):
        if wanted and not wanted.single_graph:
            raise InputError(f"{name}: (X, A, y) is one graph; for graph tasks give a list of Data")
        found = from_matrices(*obj, name=name, source=name, class_names=class_names, strict=strict)
        return with_positions(found)
    graphs = _listed(obj, name)
    wanted = wanted or TASKS[_guess(obj, graphs)]
    if wanted.single_graph and len(graphs) != 1:
        raise InputError(f"{name}: a node task is one graph, not {len(graphs)}; give one")
    if isinstance(graphs[0], nx.Graph):
        return with_positions(_from_networkx(graphs, wanted, class_names, name, strict))
    convert = _node_task if wanted.single_graph else _graph_task
    return with_positions(convert(graphs, class_names, name, strict))


def _is_matrices(obj: Any) -> bool:
    is_tuple = isinstance(obj, tuple) and len(obj) in (2, 3)
    return is_tuple and not any(isinstance(item, (Data, nx.Graph)) for item in obj)


def _listed(obj: Any, name: str) -> list[Any]:
    if isinstance(obj, Batch):
        return list(obj.to_data_list())
    if isinstance(obj, (Data, nx.Graph)):
        return [obj]
    indexed = hasattr(obj, "__len__") and hasattr(obj, "__getitem__")
    if isinstance(obj, (str, bytes, dict, torch.Tensor, HeteroData)) or not indexed:
        raise InputError(
            f"{name}: cannot use {type(obj).__name__}; give {_ACCEPTED}; "
            "for files use vepm.data.read, for known sets vepm.data.load"
        )
    graphs = [obj[i] for i in range(len(obj))]
    if not graphs:
        raise InputError(f"{name}: the list holds no graphs; give at least one")
    for kind in (Data, nx.Graph):
        if all(isinstance(graph, kind) for graph in graphs):
            return graphs
    kinds = ", ".join(sorted({type(graph).__name__ for graph in graphs}))
    raise InputError(f"{name}: holds {kinds}; give {_ACCEPTED}")


def _guess(obj: Any, graphs: list[Any]) -> TaskName:
    if len(graphs) > 1:
        return "graph"
    graph = graphs[0]
    if isinstance(graph, nx.Graph):
        return "node" if graph is obj else "graph"
    if "train_mask" in graph or not isinstance(graph.y, torch.Tensor):
        return "node"
    return "graph" if graph.y.numel() == 1 and count_nodes(graph, "data") > 1 else "node"


def _node_task(
    graphs: list[Data], class_names: Sequence[str] | None, name: str, strict: bool
) -> Dataset:
    data = graphs[0]
    cleaned = clean(data, strict=strict, source=name)
    num_nodes = cleaned.x.size(0)
    if cleaned.y.numel() != num_nodes:
        raise InputError(f"{name}: y is [1] for {num_nodes} nodes; give one label per node")
    splits = several_splits(data, cleaned.y != UNLABELLED, name)
    names = recode([cleaned], name, class_names)
    return node_dataset(
        cleaned,
        name=name,
        source=name,
        class_names=names,
        feature_names=DEGREE_FEATURES if data.x is None else None,
        splits=splits,
    )


def _graph_task(
    graphs: list[Data], class_names: Sequence[str] | None, name: str, strict: bool
) -> Dataset:
    with_features = {graph.x is not None for graph in graphs}
    if len(with_features) > 1:
        raise InputError(f"{name}: some graphs have features x and some not; give all or none")
    cleaned = []
    for i, graph in enumerate(graphs):
        result = clean(graph, strict=strict, source=f"{name}, graph {i}")
        refuse_sparse(result.x, f"{name}, graph {i}")
        if graph.y is None:
            result.y = torch.full((1,), UNLABELLED)
        if result.y.numel() != 1:
            raise InputError(
                f"{name}, graph {i}: y is [{result.y.numel()}]; a graph task has one label a graph"
            )
        cleaned.append(Data(x=result.x, edge_index=result.edge_index, y=result.y))
    _check_widths(cleaned, name)
    names = recode(cleaned, name, class_names)
    features = None if True in with_features else DEGREE_FEATURES
    return _bundle(cleaned, names, features, name)


def _from_networkx(
    graphs: list[Any], task: Task, class_names: Sequence[str] | None, name: str, strict: bool
) -> Dataset:
    if task.single_graph:
        return networkx_graphs.node_task(
            graphs[0], name=name, source=name, class_names=class_names, strict=strict
        )
    pairs = [
        networkx_graphs.to_data(graph, f"{name}, graph {i}", strict=strict)
        for i, graph in enumerate(graphs)
    ]
    labels = [networkx_graphs.graph_label(graph) for graph in graphs]
    y, names = encode_text(labels, lambda i: f"{name}, graph {i}", class_names)
    features = pairs[0][1]
    if any(set(found or ()) != set(features or ()) for _, found in pairs):
        raise InputError(f"{name}: graphs have different node attributes; give all the same ones")
    for data, found in pairs:
        if features and found:
            data.x = in_order(data.x, found, features, name)
    cleaned = [clean(data, source=f"{name}, graph {i}") for i, (data, _) in enumerate(pairs)]
    cleaned = [
        Data(x=graph.x, edge_index=graph.edge_index, y=y[i : i + 1].clone())
        for i, graph in enumerate(cleaned)
    ]
    return _bundle(
        cleaned,
        names,
        features or DEGREE_FEATURES,
        name,
        [map(str, graph) for graph in graphs],
    )


def _check_widths(graphs: list[Data], name: str) -> None:
    width = graphs[0].x.size(1)
    for i, graph in enumerate(graphs):
        if graph.x.size(1) != width:
            raise InputError(
                f"{name}, graph {i}: {graph.x.size(1)} features where graph 0 has {width}; "
                "give all graphs the same features"
            )


def _bundle(
    graphs: list[Data],
    class_names: tuple[str, ...],
    feature_names: tuple[str, ...] | None,
    name: str,
    node_names: Sequence[Iterable[str]] | None = None,
) -> Dataset:
    return Dataset(
        name=name,
        task="graph",
        graphs=graphs,
        num_classes=len(class_names),
        class_names=class_names,
        feature_names=feature_names,
        node_names=None if node_names is None else tuple(tuple(names) for names in node_names),
        source=name,
    )
