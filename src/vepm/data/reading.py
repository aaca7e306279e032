"""Users' own graphs: from memory (PyG, NetworkX, matrices) and from files."""

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from vepm.data.build import Parts, build, count_nodes, data_parts, matrix_parts
from vepm.data.canonical import KIND_SEPARATOR
from vepm.data.columns import ReadOptions, Table
from vepm.data.dataset import Dataset, relabelled
from vepm.data.npz import read_npz
from vepm.data.registry import expanded
from vepm.data.tables import read_edges, read_folder, read_text, table_parts
from vepm.errors import InputError
from vepm.tasks import Task, TaskName, task_named

logger = logging.getLogger("vepm")

_ACCEPTED = (
    "a PyG Data or a NetworkX graph, a list of them, or a tuple (X, A, y) with a SciPy sparse A; "
    "for files use vepm.data.read, for known sets vepm.data.load"
)
_LABEL_NAMES = ("label", "y")
_GRAPH = re.compile(r"<(\w+:)?graph\b")
_NODE = re.compile(r"<(\w+:)?node\b")


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
    how = ReadOptions(label, features, (), class_names, feature_names, strict, weights, directed)
    asked = None if task is None else task_named(task)
    if isinstance(obj, Dataset):
        if task is not None and task != obj.task:
            raise InputError(f"{obj.name} is a {obj.task} task, not a {task} task; use the other")
        return obj if labels is None else relabelled(obj, labels, class_names=class_names)
    parts = _parts(obj, asked, name, how)
    return build(parts if labels is None else replace(parts, labels=labels, label_at=None), how)


def _parts(obj: Any, task: Task | None, name: str, options: ReadOptions) -> Parts:
    """What matrices, PyG or NetworkX graphs hold."""
    is_tuple = isinstance(obj, tuple) and len(obj) in (2, 3)
    matrices = is_tuple and not any(isinstance(item, (Data, nx.Graph)) for item in obj)
    graphs = [] if matrices else _listed(obj, name)
    single = task.single_graph if task else matrices or _guess_single(obj, graphs)
    if matrices and not single:
        raise InputError(f"{name}: (X, A, y) is one graph; for graph tasks give a list of Data")
    if single and len(graphs) > 1:
        raise InputError(f"{name}: a node task is one graph, not {len(graphs)}; give one")
    if graphs and isinstance(graphs[0], nx.Graph):
        return networkx_parts(graphs, name, options, single=single)
    if options.label:
        raise InputError(f"{name}: it has no names to choose the label by; give labels=")
    if matrices:
        return matrix_parts(*obj, name=name, source=name, options=options)
    options.chosen({}, name)
    return data_parts(graphs, name, single=single)


def _listed(obj: Any, name: str) -> list[Any]:
    if isinstance(obj, Batch):
        return list(obj.to_data_list())
    one = isinstance(obj, (Data, HeteroData, nx.Graph, str, bytes, dict, Tensor))
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


def networkx_parts(
    graphs: Sequence[Any], name: str, options: ReadOptions, *, single: bool, source: str = ""
) -> Parts:
    """Graphs by way of tables of all their nodes and edges; labels are of nodes if ``single``."""
    source = source or name
    nodes = [(i, *node) for i, graph in enumerate(graphs) for node in graph.nodes(data=True)]
    keys = [{key for _, data in graph.nodes(data=True) for key in data} for graph in graphs]
    if any(found != keys[0] for found in keys):
        raise InputError(f"{name}: graphs have different node attributes; give all the same")
    columns, attributes = _columns(data for *_, data in nodes), _columns(g.graph for g in graphs)
    labelled = columns if single else attributes
    label = options.label or next((key for key in _LABEL_NAMES if key in labelled), None)
    # Perhaps the answer too, unless the labels, or features, are named: then it is as any other.
    named = not single or options.label or options.features
    doubtful = [] if named else [key for key in _LABEL_NAMES if key in columns and key != label]
    for key in doubtful:
        del columns[key]
    names = [str(node) for _, node, _ in nodes]
    lines = [f"'{name}'" for name in names]
    of_graphs = Table(source, attributes, range(len(graphs)), ("graph", "attribute"))
    directed = any(graph.is_directed() for graph in graphs)
    parts = table_parts(
        name,
        source,
        Table(source, columns | {"id": names}, lines, ("node", "attribute")),
        _edges(graphs, source),
        {(i, node): place for place, (i, node, _) in enumerate(nodes)},
        replace(options, label=label),
        graphs=None if single else of_graphs,
        # Text in these graphs is often the answer, such as the club of the karate club's members.
        text=False,
        batch=None if single else torch.tensor([i for i, _, _ in nodes], dtype=torch.long),
        directed=directed,
        one_way=not directed,
    )
    why = f"perhaps the labels again: name '{label}' as the label to use it"
    return replace(parts, unused=[*parts.unused, *(f"attribute '{k}' ({why})" for k in doubtful)])


def _edges(graphs: Sequence[Any], source: str) -> Table:
    edges = [(i, *edge) for i, graph in enumerate(graphs) for edge in graph.edges(data=True)]
    columns = _columns(data for *_, data in edges)
    columns |= {
        "source": [(i, u) for i, u, *_ in edges],
        "target": [(i, v) for i, _, v, _ in edges],
    }
    if "weight" in columns:
        # As in NetworkX, an edge without a weight has weight 1.
        columns["weight"] = [1.0 if cell is None else cell for cell in columns["weight"]]
    if "kind" in columns:
        # A name, or several in a list.
        cells = columns["kind"]
        kinds = (cell if isinstance(cell, list | set | tuple) else [cell or ""] for cell in cells)
        columns["kind"] = [KIND_SEPARATOR.join(map(str, cell)) for cell in kinds]
    columns = {key: cells for key, cells in columns.items() if key not in ("id", "key")}
    lines = [f"'{u}' to '{v}'" for _, u, v, _ in edges]
    return Table(source, columns, lines, ("edge", "attribute"))


def _columns(attributes: Iterable[Mapping[Any, Any]]) -> dict[str, list[Any]]:
    """Attributes as columns, None where there is none."""
    rows = list(attributes)
    keys = dict.fromkeys(key for row in rows for key in row)
    return {str(key): [row.get(key) for row in rows] for key in keys}


def read_graphml(path: Path, options: ReadOptions) -> Parts:
    """A GraphML file with one graph: attribute ``label`` is the label, others are features."""
    text = read_text(path)
    # Entities declared in a doctype can expand without bound or name other files.
    if "<!DOCTYPE" in text:
        raise InputError(f"{path}: has a DOCTYPE, which is not read for safety; remove it")
    if (count := len(_GRAPH.findall(text))) != 1:
        raise InputError(f"{path}: holds {count} graphs; give a GraphML document with one")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            graph = nx.parse_graphml(text)
    except Exception as error:  # the parser raises whatever its parts do
        wrong = f"truncated, or not usable GraphML ({' '.join(str(error).split())[:200]})"
        raise InputError(f"{path}: {wrong}; export the graph again") from None
    # NetworkX joins nodes of one id, and adds those that only edges name.
    if (declared := len(_NODE.findall(text))) != graph.number_of_nodes():
        wrong = f"lists {declared} nodes, but ids and edges name {graph.number_of_nodes()}"
        raise InputError(f"{path}: {wrong}; list each node once, and every end of an edge")
    for line in dict.fromkeys(str(warning.message) for warning in found):
        logger.warning("%s: %s", path, " ".join(line.split())[:200])
    return networkx_parts([graph], path.stem, options, single=True, source=str(path))


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
    how = ReadOptions(label, features, drop, class_names, feature_names, strict, weights, directed)
    try:
        reader = read_folder if path.is_dir() else _READERS.get(path.suffix.lower())
        wrong = f"cannot read '{path.suffix}' files" if path.exists() else "no such file or folder"
        reader = reader if path.exists() else None
    except (OSError, ValueError) as error:
        reader, wrong = None, f"is not a path ({error})"
    if reader is None:
        raise InputError(f"{path}: {wrong}; give {_FILES}")
    return build(reader(path, how), how)
