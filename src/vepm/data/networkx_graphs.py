"""NetworkX graphs, in memory or as GraphML, GML and GEXF files."""

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat

import networkx as nx
import torch

from vepm.data.build import Parts, ReadOptions
from vepm.data.columns import encode_columns
from vepm.data.edges import KIND_SEPARATOR, encode_kinds
from vepm.data.labels import masks_from_text
from vepm.data.tables import read_text
from vepm.errors import InputError

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
    labels = [
        next((_text(graph.graph[n]) for n in _LABEL_NAMES if n in graph.graph), "")
        for graph in graphs
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
    x, features, unused = _features(names, rows, source, other, options)
    others = [key for key in edge_keys if key not in ("kind", "weight", *_IDS)]
    unused += [f"edge attribute '{key}'" for key in others]
    return {
        "edges": torch.tensor(ends, dtype=torch.long).view(-1, 2).t(),
        "num_nodes": len(names),
        "node_names": names,
        "one_way": not directed,
        "directed": directed,
        "weights": torch.tensor(weights).double() if weights and "weight" in edge_keys else None,
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
    return encode_columns(
        columns, lambda i, key: f"{source}, node '{names[i]}', attribute '{key}'", options, source
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
    graph = _parse(path, "GEXF", lambda text: nx.read_gexf(io.BytesIO(text.encode())), xml=True)
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


def _parse(path: Path, format_name: str, parse: Callable[[str], Any], xml: bool = False) -> Any:
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: the file is empty; give a {format_name} document")
    if xml:
        _Checker(str(path)).check(text)
    try:
        return parse(text)
    except Exception as error:  # the parsers raise whatever their parts do
        line = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path}: not usable {format_name} ({line}); export the graph again"
        ) from None


class _Checker:
    """One pass over XML that refuses what NetworkX accepts, naming the line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.graphs = 0
        self.nodes: set[str] = set()
        self.ends: list[tuple[str, int]] = []
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._element
        self.parser.StartDoctypeDeclHandler = self._doctype

    def check(self, text: str) -> None:
        """Refuse malformed XML, doctypes, several graphs, and edges to unknown nodes."""
        try:
            self.parser.Parse(text, True)
        except (expat.ExpatError, LookupError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{self.source}: truncated or not XML ({error}); export the graph again"
            ) from None
        if self.graphs != 1:
            raise InputError(f"{self.source}: holds {self.graphs} graphs; give a file with one")
        for node, line in self.ends:
            if node not in self.nodes:
                raise InputError(
                    f"{self.source}, row {line}: the edge joins node '{node}', "
                    "which the file does not have; add the node or correct the edge"
                )

    def _element(self, tag: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        match tag.rpartition(":")[2]:
            case "graph":
                self.graphs += 1
            case "node":
                node = attributes.get("id", "")
                if node in self.nodes:
                    raise InputError(
                        f"{self.source}, row {line}: node '{node}' is there twice; "
                        "give each id once"
                    )
                self.nodes.add(node)
            case "edge":
                self.ends += [(attributes.get(end, ""), line) for end in ("source", "target")]

    def _doctype(self, name: str, system: str | None, public: str | None, subset: bool) -> None:
        # Entities declared in a doctype can expand without bound or name other files.
        raise InputError(
            f"{self.source}, row {self.parser.CurrentLineNumber}: has a DOCTYPE, which is not "
            "read for safety; remove it"
        )
