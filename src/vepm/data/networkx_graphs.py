"""NetworkX graphs, in memory or as GraphML, GML and GEXF files."""

import io
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree  # nosec B405 (doctypes are refused first)

import networkx as nx
import torch

from vepm.data.build import Parts, ReadOptions
from vepm.data.columns import encode_columns
from vepm.data.edges import KIND_SEPARATOR, encode_kinds
from vepm.data.labels import masks_from_text
from vepm.data.tables import read_text
from vepm.errors import InputError

logger = logging.getLogger("vepm")

_LABEL_NAMES = ("label", "y")
_IDS = ("id", "key")


def node_parts(graph: Any, name: str, source: str, options: ReadOptions) -> Parts:
    """A node task: attribute ``label`` (or ``y``) is the label, ``split`` says train/val/test."""
    nodes = list(graph)
    label = options.label or next(
        (n for n in _LABEL_NAMES if any(n in graph.nodes[v] for v in nodes)), "label"
    )
    if options.label and not any(label in graph.nodes[v] for v in nodes):
        raise InputError(f"{source}: no node has an attribute '{label}' with its label")
    fields = _union([graph], source, {*_LABEL_NAMES, label, "split"}, options)

    def where(i: int) -> str:
        return f"{source}, node '{nodes[i]}'"

    split = [_text(graph.nodes[v].get("split")) for v in nodes]
    return Parts(
        name=name,
        source=source,
        labels=[_text(graph.nodes[v].get(label)) for v in nodes],
        label_at=where,
        masks=masks_from_text(split, where) if any(split) else {},
        **fields,
    )


def graph_parts(graphs: Sequence[Any], name: str, options: ReadOptions) -> Parts:
    """A graph task: the label of a graph is ``graph.graph["label"]`` (or ``"y"``)."""
    known = (options.label,) if options.label else _LABEL_NAMES
    labels = [
        next((_text(graph.graph[n]) for n in known if n in graph.graph), "") for graph in graphs
    ]
    keys = [{key for _, data in graph.nodes(data=True) for key in data} for graph in graphs]
    if any(found != keys[0] for found in keys):
        raise InputError(f"{name}: graphs have different node attributes; give all the same ones")
    counts = torch.tensor([len(graph) for graph in graphs])
    return Parts(
        name=name,
        source=name,
        labels=labels,
        label_at=lambda i: f"{name}, graph {i}",
        batch=torch.arange(len(graphs)).repeat_interleave(counts),
        num_graphs=len(graphs),
        **_union(graphs, name, set(), options),
    )


def _union(
    graphs: Sequence[Any], source: str, other: set[str], options: ReadOptions
) -> dict[str, Any]:
    """Edges, features and names of the disjoint union of graphs."""
    names: list[str] = []
    rows, ends, kinds, weights = [], [], [], []
    edge_keys: dict[Any, None] = {}
    for i, graph in enumerate(graphs):
        if not len(graph):
            raise InputError(
                f"{source}{_which(i, graphs)}: the graph has no nodes; every graph needs at least "
                "one"
            )
        index = {node: len(names) + place for place, node in enumerate(graph)}
        names += [str(node) for node in graph]
        rows += [data for _, data in graph.nodes(data=True)]
        for u, v, data in graph.edges(data=True):
            ends.append((index[u], index[v]))
            kinds.append(_kind_text(data.get("kind")))
            if options.weights:
                weights.append(_weight(data.get("weight"), u, v, source))
            edge_keys |= dict.fromkeys(data)
    directed = any(graph.is_directed() for graph in graphs)
    weighted = options.weights and "weight" in edge_keys
    x, features, unused = _features(names, rows, source, other, options)
    others = [key for key in edge_keys if key not in ("kind", "weight", *_IDS)]
    unused += [f"edge attribute '{key}'" for key in others]
    return {
        "edges": torch.tensor(ends, dtype=torch.long).view(-1, 2).t(),
        "num_nodes": len(names),
        "node_names": names,
        "one_way": not directed,
        "directed": directed,
        "weights": torch.tensor(weights, dtype=torch.float64) if weighted else None,
        "weight_at": lambda i: f"{source}, edge '{names[ends[i][0]]}' to '{names[ends[i][1]]}'",
        "kinds": encode_kinds(kinds, source) if "kind" in edge_keys else None,
        "x": x,
        "feature_names": features,
        "unused": unused,
    }


def _features(
    names: Sequence[str], rows: Sequence[Any], source: str, other: set[str], options: ReadOptions
) -> Any:
    keys = dict.fromkeys(key for row in rows for key in row if key not in other)
    columns = {str(key): [row.get(key) for row in rows] for key in keys}
    # Text in these graphs is often the answer, such as the club of the karate club's members.
    return encode_columns(
        columns,
        lambda i, key: f"{source}, node '{names[i]}', attribute '{key}'",
        options,
        source,
        text=False,
    )


def _which(i: int, graphs: Sequence[Any]) -> str:
    return f", graph {i}" if len(graphs) > 1 else ""


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _weight(value: Any, u: Any, v: Any, source: str) -> float:
    """The weight of an edge; 1 without one, as in NetworkX."""
    if value is None:
        return 1.0
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{source}, edge '{u}' to '{v}': weight '{str(value)[:40]}' is no number; correct it"
        ) from None


def _kind_text(value: Any) -> str:
    """Kinds of an edge as text: a name, or several in a list."""
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return KIND_SEPARATOR.join(map(str, value)) if several else _text(value)


def read_graphml(path: Path, options: ReadOptions) -> Parts:
    """A GraphML file: attribute ``label`` is the label, other attributes are features."""
    graph = _parse(path, "GraphML", nx.parse_graphml, xml=True)
    return node_parts(graph, path.stem, str(path), options)


def read_gexf(path: Path, options: ReadOptions) -> Parts:
    """A GEXF file; see :func:`read_gml` for its labels."""
    graph = _parse(path, "GEXF", _parse_gexf, xml=True)
    return node_parts(_named(graph), path.stem, str(path), options)


def read_gml(path: Path, options: ReadOptions) -> Parts:
    """A GML file; ``label`` is the name of a node where all differ, as is the custom there."""
    graph = _parse(path, "GML", lambda text: nx.parse_gml(text, label="id"))
    return node_parts(_named(graph), path.stem, str(path), options)


def _named(graph: Any) -> Any:
    names = dict(graph.nodes(data="label"))
    if None in names.values() or len(set(names.values())) < len(names):
        return graph
    for _, data in graph.nodes(data=True):
        del data["label"]
    return nx.relabel_nodes(graph, names)


def _parse_gexf(text: str) -> Any:
    # The text is decoded, so an encoding named in the file must not be applied again.
    return nx.read_gexf(io.StringIO(text))  # type: ignore[arg-type]


def _parse(path: Path, format_name: str, parse: Callable[[str], Any], xml: bool = False) -> Any:
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: the file is empty; give a {format_name} document")
    if xml:
        _check_xml(text, str(path))
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            graph = parse(text)
        for line in dict.fromkeys(str(warning.message) for warning in found):
            logger.warning("%s: %s", path, " ".join(line.split())[:200])
        return graph
    except Exception as error:  # the parsers raise whatever their parts do
        line = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path}: not usable {format_name} ({line}); export the graph again"
        ) from None


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
