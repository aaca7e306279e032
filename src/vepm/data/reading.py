"""The two ways in for users' own graphs: from memory and from files."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from vepm.data.build import Parts, ReadOptions, build, refuse_choice
from vepm.data.dataset import Dataset
from vepm.data.in_memory import count_nodes, data_parts, matrix_parts
from vepm.data.labels import relabelled
from vepm.data.networkx_graphs import networkx_parts, read_graph_file
from vepm.data.npz import read_npz
from vepm.data.tables import read_edges, read_folder
from vepm.errors import InputError
from vepm.files import expanded
from vepm.tasks import TASKS, Task, TaskName, task_named

_READERS: dict[str, Callable[[Path, ReadOptions], Parts]] = {
    ".csv": read_edges,
    ".edgelist": read_edges,
    ".gexf": read_graph_file,
    ".gml": read_graph_file,
    ".graphml": read_graph_file,
    ".npz": read_npz,
    ".tsv": read_edges,
    ".txt": read_edges,
}
_FILES = f"a folder with edges.csv, or a file that ends in {', '.join(_READERS)}"
_ACCEPTED = (
    "a PyG Data (or a list or dataset of them), a NetworkX graph (or a list), "
    "or a tuple (X, A, y) with a SciPy sparse A"
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

    Labels may be any integers from 0 or any names, -1 for none. Without a ``train_mask`` all
    labelled nodes that no other mask holds are for training. Graphs without features get a
    constant and log(1 + degree), and, where nodes are labelled, 16 spectral coordinates. Weights of
    edges (entries of A, ``edge_weight`` in PyG, attribute ``weight`` in NetworkX) are used, kinds
    of edges (``edge_kind`` and ``kind_names``, attribute ``kind``) only kept. A warning names what
    is not used.

    Args:
        obj: a PyG ``Data``, a list or dataset of them, a NetworkX graph or a list of them, a tuple
            ``(X, A)`` or ``(X, A, y)`` with A a SciPy sparse or dense matrix, X an array or data
            frame, and X, y perhaps None, or a :class:`Dataset`, given back as it is.
        task: ``"node"`` or ``"graph"``; without it one graph is a node task unless it has a single
            label for its many nodes, and several graphs are a graph task.
        name: what to call the data in messages and reports.
        labels: one for each node or graph, instead of the labels of ``obj``.
        label: the NetworkX attribute with the labels, if it is not ``label`` or ``y``.
        features: the NetworkX attributes or columns of X to use; by default all that can be used,
            and attributes of text only if they are named here.

    The other arguments are those of :func:`read`.

    Example:
        >>> import networkx as nx
        >>> from vepm.data import as_dataset
        >>> as_dataset(nx.karate_club_graph(), label="club").class_names
        ('Mr. Hi', 'Officer')
    """
    options = ReadOptions(
        label, features, (), class_names, feature_names, strict, weights, directed
    )
    asked = None if task is None else task_named(task)
    if isinstance(obj, Dataset):
        if task is not None and task != obj.task:
            raise InputError(f"{obj.name} is a {obj.task} task, not a {task} task; use the other")
        if labels is None:
            return obj
        return relabelled(obj, labels, class_names=class_names)
    parts = _parts(obj, asked, name, options)
    if labels is not None:
        parts = replace(parts, labels=labels, label_at=None, class_names=None)
    return build(parts, options)


def _parts(obj: Any, task: Task | None, name: str, options: ReadOptions) -> Parts:
    """What matrices, PyG or NetworkX graphs hold."""
    is_tuple = isinstance(obj, tuple) and len(obj) in (2, 3)
    matrices = is_tuple and not any(isinstance(item, (Data, nx.Graph)) for item in obj)
    graphs = [] if matrices else _listed(obj, name)
    if matrices and task and not task.single_graph:
        raise InputError(f"{name}: (X, A, y) is one graph; for graph tasks give a list of Data")
    single = matrices or (task or TASKS[_guess(obj, graphs)]).single_graph
    if single and len(graphs) > 1:
        raise InputError(f"{name}: a node task is one graph, not {len(graphs)}; give one")
    if graphs and isinstance(graphs[0], nx.Graph):
        return networkx_parts(graphs, name, options, single=single)
    if options.label:
        raise InputError(f"{name}: it has no names to choose the label by; give labels=")
    if matrices:
        return matrix_parts(*obj, name=name, source=name, options=options)
    refuse_choice(name, options)
    return data_parts(graphs, name, single=single)


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

    - A folder: ``edges.csv`` has columns ``source`` and ``target``, each edge in one direction or
      both, and perhaps ``weight`` and ``kind``. ``nodes.csv`` has ``id``, perhaps ``label`` and
      ``split`` (train/val/test), and every other column is a feature; without it the nodes are
      those of the edges. With ``graphs.csv`` (``id``, ``label``, perhaps ``split``) it is a graph
      task, and ``nodes.csv`` has a ``graph`` column. Ids are text, unique over the whole folder;
      cells are separated by commas, semicolons or tabs.
    - ``.csv``: edges alone. ``.edgelist``, ``.txt``, ``.tsv``: two ids in every line, and perhaps
      the weight.
    - ``.graphml``, ``.gml``, ``.gexf``: node attribute ``label``, perhaps ``split``; other
      attributes are features, those of text only if ``features`` names them. In GML and GEXF a
      ``label`` that differs in every node is its name.
    - ``.npz``: ``adj_data``, ``adj_indices``, ``adj_indptr``, ``adj_shape``; features ``attr_*``
      or ``attr_matrix``; ``labels``; ``train_mask`` and the like; or what SciPy's ``save_npz``
      wrote, which is edges alone.

    An empty label or -1 means unlabelled. Columns of text become one column of zeros and ones per
    value, named ``column=value``. Weights are positive and added up where an edge is listed several
    times; one listed in both directions has the weight listed if both are the same throughout the
    data. The kinds of an edge (separated by ``|``; in ``.npz`` a bit mask ``edge_kind`` and
    ``kind_names``) are kept as ``edge_kind`` [E, R]; no model sees them. The rest is as in
    :func:`as_dataset`.

    Args:
        path: the folder or file.
        label: the column with the labels; in ``.npz`` files the array.
        features: the columns to use as features; by default all that can be used.
        drop: columns to leave out.
        class_names: the classes of a fitted model, so that indices agree with it.
        feature_names: the feature columns of a fitted model, so that text is encoded as it was.
        strict: refuse self-loops, duplicates and one-way edges instead of correcting them.
        weights: whether to use the weights of edges.
        directed: whether to keep the directions of edges; by default both belong to an edge.
    """
    path = expanded(path)
    options = ReadOptions(
        label, features, tuple(drop), class_names, feature_names, strict, weights, directed
    )
    return build(_reader_of(path)(path, options), options)


def _reader_of(path: Path) -> Callable[[Path, ReadOptions], Parts]:
    """What reads a folder or file."""
    suffix = path.suffix.lower()
    try:
        exists = path.exists()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is no path ({error}); give {_FILES}") from None
    if not exists:
        raise InputError(f"{path}: no such file or folder; give {_FILES}")
    if path.is_dir():
        return read_folder
    if suffix not in _READERS:
        raise InputError(f"{path}: cannot read '{path.suffix}' files; give {_FILES}")
    return _READERS[suffix]


def _listed(obj: Any, name: str) -> list[Any]:
    if isinstance(obj, Batch):
        return list(obj.to_data_list())
    if isinstance(obj, (Data, nx.Graph)):
        return [obj]
    indexed = hasattr(obj, "__len__") and hasattr(obj, "__getitem__")
    if isinstance(obj, (str, bytes, dict, Tensor, HeteroData)) or not indexed:
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
    if "train_mask" in graph or not isinstance(graph.y, Tensor):
        return "node"
    return "graph" if graph.y.numel() == 1 and count_nodes(graph, "data") > 1 else "node"
