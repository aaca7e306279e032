"""Users' own graphs: from memory (PyG, NetworkX, matrices) and from files."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from vepm.data.build import Parts, build, count_nodes, data_parts, matrix_parts
from vepm.data.columns import ReadOptions
from vepm.data.dataset import Dataset
from vepm.data.labels import relabelled
from vepm.data.networkx_graphs import networkx_parts, read_graphml
from vepm.data.npz import read_npz
from vepm.data.tables import read_edges, read_folder
from vepm.errors import InputError
from vepm.files import expanded
from vepm.tasks import Task, TaskName, task_named

_ACCEPTED = (
    "a PyG Data or a NetworkX graph, a list of them, or a tuple (X, A, y) with a SciPy sparse A; "
    "for files use vepm.data.read, for known sets vepm.data.load"
)


def as_dataset(
    obj: Any,
    task: TaskName | None = None,
    *,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    name: str = "data",
    strict: bool = False,
    labels: Any = None,
    label: str | None = None,
    features: Sequence[str] | None = None,
    weights: bool = True,
    directed: bool = False,
) -> Dataset:
    """Check graphs in memory and put them in canonical form.

    Labels are integers from 0 or names, -1 for none. Without a ``train_mask`` all labelled nodes
    that no other mask holds are for training. Graphs without features get a constant and
    log(1 + degree), and, where nodes are labelled, 16 spectral coordinates. Weights of edges
    (entries of A, ``edge_weight`` in PyG, attribute ``weight`` in NetworkX) are used, kinds of
    edges (``edge_kind`` and ``kind_names``, attribute ``kind``) kept; a warning names the rest.

    Args:
        obj: a PyG ``Data`` or NetworkX graph, a list or dataset of them, a tuple ``(X, A)`` or
            ``(X, A, y)`` of matrices or data frames, sparse or dense, X and y perhaps None, or a
            :class:`Dataset`, given back as it is.
        task: ``"node"`` or ``"graph"``; without it one graph is a node task unless it has a single
            label for its many nodes, and several graphs are a graph task.
        labels: one for each node or graph, instead of the labels of ``obj``.
        label: the NetworkX attribute with the labels, if it is not ``label`` or ``y``.
        features: the NetworkX attributes or columns of X to use; by default all but text.

    The other arguments are those of :func:`read`.

    Example:
        >>> import networkx as nx
        >>> from vepm.data import as_dataset
        >>> as_dataset(nx.karate_club_graph(), label="club").class_names
        ('Mr. Hi', 'Officer')
    """
    how = ReadOptions(label, features, (), class_names, feature_names, strict, weights, directed)
    asked = None if task is None else task_named(task)
    if isinstance(obj, Dataset):
        if task is not None and task != obj.task:
            raise InputError(f"{obj.name} is a {obj.task} task, not a {task} task; use the other")
        return obj if labels is None else relabelled(obj, labels, class_names=class_names)
    parts = _parts(obj, asked, name, how)
    if labels is not None:
        parts.data.y, parts = labels, replace(parts, label_at=None)
    return build(parts, how)


def _parts(obj: Any, task: Task | None, name: str, options: ReadOptions) -> Parts:
    is_tuple = isinstance(obj, tuple) and len(obj) in (2, 3)
    matrices = is_tuple and not any(isinstance(item, (Data, nx.Graph)) for item in obj)
    graphs = [] if matrices else _listed(obj, name)
    single = task.single_graph if task else matrices or _guess_single(obj, graphs)
    if (matrices and not single) or (single and len(graphs) > 1):
        needed = "a node task is one graph, a graph task a list of Data or NetworkX graphs"
        raise InputError(f"{name}: {needed}; give the other task, or other data")
    if graphs and isinstance(graphs[0], nx.Graph):
        return networkx_parts(graphs, name, options, single=single)
    if options.label:
        raise InputError(f"{name}: it has no names to choose the label by; give labels=")
    if matrices:
        return matrix_parts(*obj, name=name, source=name, options=options)
    options.chosen({}, name)
    return data_parts(graphs, name, single=single)


def _listed(obj: Any, name: str) -> list[Any]:
    one = isinstance(obj, (HeteroData, nx.Graph, str, bytes, dict, Tensor))
    one |= isinstance(obj, Data) and not isinstance(obj, Batch)
    indexed = hasattr(obj, "__len__") and hasattr(obj, "__getitem__")
    graphs = [obj[i] for i in range(len(obj))] if indexed and not one else [obj]
    for kind in (Data, nx.Graph):
        if graphs and all(isinstance(graph, kind) for graph in graphs):
            return graphs
    kinds = ", ".join(sorted({type(graph).__name__ for graph in graphs})) or "an empty list"
    raise InputError(f"{name}: cannot use {kinds}; give {_ACCEPTED}")


def _guess_single(obj: Any, graphs: list[Any]) -> bool:
    graph = graphs[0]
    if len(graphs) > 1 or isinstance(graph, nx.Graph):
        return graph is obj
    one_label = isinstance(graph.y, Tensor) and graph.y.numel() == 1
    return "train_mask" in graph or not one_label or count_nodes(graph) <= 1


_READERS: dict[str, Callable[[Path, ReadOptions], Parts]] = {
    **dict.fromkeys((".csv", ".edgelist", ".tsv", ".txt"), read_edges),
    ".graphml": read_graphml,
    ".npz": read_npz,
}
_FILES = f"a folder with edges.csv, or a file that ends in {', '.join(_READERS)}"


def read(
    path: str | Path,
    *,
    label: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    strict: bool = False,
    weights: bool = True,
    directed: bool = False,
) -> Dataset:
    """Read a graph, or a set of graphs, from files.

    - A folder: ``edges.csv`` has columns ``source`` and ``target``, perhaps ``weight`` and
      ``kind``. ``nodes.csv`` has ``id``, perhaps ``label`` and ``split`` (train/val/test), and
      every other column is a feature; without it the nodes are those of the edges. With
      ``graphs.csv`` (``id``, ``label``, perhaps ``split``) it is a graph task, and ``nodes.csv``
      has a ``graph`` column. Ids are unique; commas, semicolons or tabs separate cells.
    - ``.csv``: edges alone. ``.edgelist``, ``.txt``, ``.tsv``: two ids a line, perhaps the weight.
    - ``.graphml``: attributes as ``nodes.csv``; those of text only if ``features`` names them.
    - ``.npz``: ``adj_data``, ``adj_indices``, ``adj_indptr``, ``adj_shape``; features ``attr_*``
      or ``attr_matrix``; ``labels``; ``train_mask`` and the like; or a CSR matrix that SciPy's
      ``save_npz`` wrote, which is edges alone.

    Columns of text become one column of zeros and ones per value, named ``column=value``. Weights
    are positive and added up where an edge is listed several times; one listed in both directions
    has the weight listed if both are the same throughout the data. The kinds of an edge (separated
    by ``|``; in ``.npz`` a bit mask ``edge_kind`` and ``kind_names``) are kept as ``edge_kind``
    [E, R]; no model sees them. The rest is as in :func:`as_dataset`.

    ``label`` names the column (in ``.npz`` files the array) with the labels, ``features`` the
    columns to use, by default all that can be used, and ``drop`` those to leave out. With
    ``class_names`` and ``feature_names`` classes and text are encoded as a fitted model knows them.
    ``strict`` refuses self-loops, duplicates and one-way edges instead of correcting them;
    ``directed`` keeps the directions of edges, which otherwise go both ways.
    """
    path = expanded(path)
    how = ReadOptions(label, features, drop, class_names, feature_names, strict, weights, directed)
    reader = read_folder if os.path.isdir(path) else _READERS.get(path.suffix.lower())  # noqa: PTH112
    # Unlike pathlib, this is False for a name too long for any file.
    there = os.path.exists(path)  # noqa: PTH110
    if reader is None or not there:
        wrong = f"cannot read '{path.suffix}' files" if there else "no such file or folder"
        raise InputError(f"{path}: {wrong}; give {_FILES}")
    return build(reader(path, how), how)
