"""Small graphs as users keep them: folders of CSV files."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

NODES = 24
GRAPHS = 24


def write_table(path: Path, header: str, rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def write_nodes(folder: Path, *, labels: bool = True, features: int = 2) -> Path:
    """Two groups of nodes, linked mostly among themselves, whose features lean to their group."""
    draw = random.Random(0)
    nodes = []
    for i in range(NODES):
        numbers = [f"{draw.random() + (i % 2 if f == 0 else 0):.3f}" for f in range(features)]
        nodes.append([f"n{i}", *(["cat", "dog"][i % 2 : i % 2 + 1] if labels else []), *numbers])
    columns = ["id", *(["label"] if labels else []), *(f"f{f}" for f in range(features))]
    write_table(folder / "nodes.csv", ",".join(columns), nodes)
    pairs = itertools.combinations(range(NODES), 2)
    edges = [(i, j) for i, j in pairs if draw.random() < (0.5 if (i + j) % 2 == 0 else 0.03)]
    write_table(folder / "edges.csv", "source,target", [(f"n{i}", f"n{j}") for i, j in edges])
    return folder


def write_graphs(folder: Path) -> Path:
    """Rings and cliques of four to six nodes, to be told apart."""
    graphs, nodes, edges = [], [], []
    for g in range(GRAPHS):
        kind, size = ["ring", "clique"][g % 2], 4 + g % 3
        graphs.append((f"g{g}", kind))
        own = [f"g{g}n{i}" for i in range(size)]
        nodes += [(node, f"g{g}", i) for i, node in enumerate(own)]
        ring = list(itertools.pairwise([*own, own[0]]))
        edges += ring if kind == "ring" else list(itertools.combinations(own, 2))
    write_table(folder / "graphs.csv", "id,label", graphs)
    write_table(folder / "nodes.csv", "id,graph,place", nodes)
    write_table(folder / "edges.csv", "source,target", edges)
    return folder
