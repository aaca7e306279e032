"""NetworkX graphs, in memory or as GraphML, GML and GEXF files."""

import io
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree  # nosec B405 (doctypes are refused first)

import networkx as nx
import torch

from vepm.data.build import Parts, ReadOptions
from vepm.data.edges import KIND_SEPARATOR
from vepm.data.tables import Table, label_fields, node_fields, read_text
from vepm.errors import InputError

logger = logging.getLogger("vepm")

_LABEL_NAMES = ("label", "y")
_IDS = ("id", "key")


def networkx_parts(
    graphs: Sequence[Any], name: str, options: ReadOptions, *, single: bool, source: str = ""
) -> Parts:
    """Graphs by way of tables of all their nodes and edges.

    Attribute ``label`` (or ``y``) is the label, of the nodes of a ``single`` graph and otherwise
    of each graph; ``split`` of a node says train/val/test.
    """
    source = source or name
    for i, graph in enumerate(graphs):
        if not len(graph):
            at = source if single else f"{source}, graph {i}"
            raise InputError(f"{at}: the graph has no nodes; every graph needs at least one")
    nodes = [(i, *node) for i, graph in enumerate(graphs) for node in graph.nodes(data=True)]
    index = {(i, node): place for place, (i, node, _) in enumerate(nodes)}
    names = [str(node) for _, node, _ in nodes]
    lines = [f"'{name}'" for name in names]
    table = Table(source, _columns([data for *_, data in nodes]), lines, ("node", "attribute"))
    if single:
        labelled, other = table, {*_LABEL_NAMES, options.label or "label", "split"}
    else:
        keys = [{key for _, data in graph.nodes(data=True) for key in data} for graph in graphs]
        if any(found != keys[0] for found in keys):
            raise InputError(f"{name}: graphs have different node attributes; give all the same")
        columns, other = _columns([graph.graph for graph in graphs]), set()
        columns.pop("split", None)
        labelled = Table(source, columns, range(len(graphs)), ("graph", "attribute"))
    label = options.label or next((key for key in _LABEL_NAMES if key in labelled.columns), None)
    # Text in these graphs is often the answer, such as the club of the karate club's members.
    fields = node_fields(table, _edges(graphs, source), index, other, options, text=False)
    fields |= label_fields(labelled, replace(options, label=label))
    directed = any(graph.is_directed() for graph in graphs)
    return Parts(
        name=name,
        source=source,
        node_names=names,
        batch=None if single else torch.tensor([i for i, _, _ in nodes]),
        directed=directed,
        **fields | {"one_way": not directed},
    )


def _edges(graphs: Sequence[Any], source: str) -> Table:
    edges = [(i, *edge) for i, graph in enumerate(graphs) for edge in graph.edges(data=True)]
    columns = _columns([data for *_, data in edges])
    for key in _IDS:
        columns.pop(key, None)
    columns |= {
        "source": [(i, u) for i, u, *_ in edges],
        "target": [(i, v) for i, _, v, _ in edges],
    }
    if "weight" in columns:
        # As in NetworkX, an edge without a weight has weight 1.
        columns["weight"] = [1.0 if cell is None else cell for cell in columns["weight"]]
    if "kind" in columns:
        # A name, or several in a list.
        columns["kind"] = [
            KIND_SEPARATOR.join(map(str, cell))
            if isinstance(cell, Iterable) and not isinstance(cell, str)
            else str(cell or "")
            for cell in columns["kind"]
        ]
    return Table(
        source, columns, [f"'{u}' to '{v}'" for _, u, v, _ in edges], ("edge", "attribute")
    )


def _columns(rows: Sequence[Mapping[Any, Any]]) -> dict[str, list[Any]]:
    """Attributes as columns, None where there is none."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {str(key): [row.get(key) for row in rows] for key in keys}


# GEXF as text: it is decoded, so an encoding named in the file must not be applied again.
_FORMATS: dict[str, tuple[str, Callable[[str], Any]]] = {
    ".gexf": ("GEXF", lambda text: nx.read_gexf(io.StringIO(text))),  # type: ignore[arg-type]
    ".gml": ("GML", lambda text: nx.parse_gml(text, label="id")),
    ".graphml": ("GraphML", nx.parse_graphml),
}


def read_graph_file(path: Path, options: ReadOptions) -> Parts:
    """A GraphML, GML or GEXF file: attribute ``label`` is the label, others are features.

    In GML and GEXF ``label`` is the name of a node where all differ, as is the custom there.
    """
    kind, parse = _FORMATS[path.suffix.lower()]
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: the file is empty; give a {kind} document")
    if kind != "GML":
        _check_xml(text, str(path))
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            graph = parse(text)
    except Exception as error:  # the parsers raise whatever their parts do
        line = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: not usable {kind} ({line}); export the graph again") from None
    for line in dict.fromkeys(str(warning.message) for warning in found):
        logger.warning("%s: %s", path, " ".join(line.split())[:200])
    named = graph if kind == "GraphML" else _named(graph)
    return networkx_parts([named], path.stem, options, single=True, source=str(path))


def _named(graph: Any) -> Any:
    names = dict(graph.nodes(data="label"))
    plain = all(isinstance(name, str | int | float) for name in names.values())
    if not plain or len(set(names.values())) < len(names):
        return graph
    for _, data in graph.nodes(data=True):
        del data["label"]
    return nx.relabel_nodes(graph, names)


def _check_xml(text: str, source: str) -> None:
    """Refuse what NetworkX accepts: doctypes, several graphs, edges to nodes that are not there."""
    # Entities declared in a doctype can expand without bound or name other files.
    if "<!DOCTYPE" in text:
        raise InputError(f"{source}: has a DOCTYPE, which is not read for safety; remove it")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 # there is no doctype  # nosec B314
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise InputError(
            f"{source}: truncated or not XML ({error}); export the graph again"
        ) from None
    count = sum(1 for _ in root.iterfind(".//{*}graph"))
    if count != 1:
        raise InputError(f"{source}: holds {count} graphs; give a file with one")
    ids = Counter(node.get("id", "") for node in root.iterfind(".//{*}node"))
    for node, times in ids.most_common(1):
        if times > 1:
            raise InputError(f"{source}: node '{node}' is there twice; give each id once")
    for edge in root.iterfind(".//{*}edge"):
        for end in (edge.get("source", ""), edge.get("target", "")):
            if end not in ids:
                raise InputError(
                    f"{source}: an edge joins node '{end}', which the file does not have; add the "
                    "node or correct the edge"
                )
