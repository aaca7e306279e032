"""GraphML files, read with care: they are XML, and NetworkX forgives too much."""

from collections.abc import Sequence
from pathlib import Path
from xml.parsers import expat

import networkx as nx

from vepm.data.dataset import Dataset
from vepm.data.networkx_graphs import node_task
from vepm.errors import InputError


def read_graphml(path: Path, *, strict: bool, class_names: Sequence[str] | None) -> Dataset:
    """A node task: attribute ``label`` is the label, numeric attributes are features."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); save the file as UTF-8") from None
    if not text.strip():
        raise InputError(f"{path}: the file is empty; give a GraphML document")
    _Checker(str(path)).check(text)
    try:
        graph = nx.parse_graphml(text)
    except Exception as error:  # the parser raises whatever its parts do
        line = " ".join(str(error).split())
        raise InputError(f"{path}: not usable GraphML ({line}); export the graph again") from None
    return node_task(
        graph, name=path.stem, source=str(path), class_names=class_names, strict=strict
    )


class _Checker:
    """One pass that refuses what NetworkX would let through, naming the line."""

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
                    "which the file does not have; add the node or mend the edge"
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
