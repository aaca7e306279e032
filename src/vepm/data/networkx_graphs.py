"""NetworkX graphs, and GraphML files by way of them, as tables of their attributes."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import torch

from vepm.data.build import Parts
from vepm.data.canonical import KIND_SEPARATOR
from vepm.data.columns import ReadOptions, Table
from vepm.data.tables import read_text, table_parts
from vepm.errors import InputError

_LABEL_NAMES = ("label", "y")
_GRAPH = re.compile(r"<(\w+:)?graph\b")
_NODE = re.compile(r"<(\w+:)?node\b")


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
    for key in {*_LABEL_NAMES} - {label} if single else ():
        columns.pop(key, None)
    names = [str(node) for _, node, _ in nodes]
    lines = [f"'{name}'" for name in names]
    of_graphs = Table(source, attributes, range(len(graphs)), ("graph", "attribute"))
    directed = any(graph.is_directed() for graph in graphs)
    return table_parts(
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


def _edges(graphs: Sequence[Any], source: str) -> Table:
    edges = [(i, *edge) for i, graph in enumerate(graphs) for edge in graph.edges(data=True)]
    columns = _columns(data for *_, data in edges)
    if "weight" in columns:
        # As in NetworkX, an edge without a weight has weight 1.
        columns["weight"] = [1.0 if cell is None else cell for cell in columns["weight"]]
    if "kind" in columns:
        # A name, or several in a list.
        cells = columns["kind"]
        kinds = (cell if isinstance(cell, list | set | tuple) else [cell or ""] for cell in cells)
        columns["kind"] = [KIND_SEPARATOR.join(map(str, cell)) for cell in kinds]
    columns = {key: cells for key, cells in columns.items() if key not in ("id", "key")}
    columns["source"] = [(i, u) for i, u, *_ in edges]
    columns["target"] = [(i, v) for i, _, v, _ in edges]
    return Table(
        source, columns, [f"'{u}' to '{v}'" for _, u, v, _ in edges], ("edge", "attribute")
    )


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
        with warnings.catch_warnings():
            # About keys without a type, which are then text.
            warnings.simplefilter("ignore")
            graph = nx.parse_graphml(text)
    except Exception as error:  # the parser raises whatever its parts do
        wrong = f"truncated, or not usable GraphML ({' '.join(str(error).split())[:200]})"
        raise InputError(f"{path}: {wrong}; export the graph again") from None
    # NetworkX joins nodes of one id, and adds those that only edges name.
    if (declared := len(_NODE.findall(text))) != graph.number_of_nodes():
        wrong = f"lists {declared} nodes, but ids and edges name {graph.number_of_nodes()}"
        raise InputError(f"{path}: {wrong}; list each node once, and every end of an edge")
    return networkx_parts([graph], path.stem, options, single=True, source=str(path))
