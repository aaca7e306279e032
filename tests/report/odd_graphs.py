"""Fifty graphs at the edge of what a page can show.

As a program: train on each ``.npz`` file of a folder and draw its page.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import numpy as np

from cli.running import succeed

from .writing import Array

TINY = (
    *("--set", "epochs=1"), *("--set", "pretrain_epochs=1"), *("--set", "num_communities=4"),
    *("--set", "num_metacommunities=2"), *("--device", "cpu"),
)  # fmt: skip
SCALES = (1e-38, 1e-27, 1e-20, 1e20, 1e27, 1e38)

Graph = dict[str, Array]


def odd_graphs() -> dict[str, Graph]:
    """Arrays of .npz files, by name."""
    named = [*_shapes(), *_features(), *_labels()]
    graphs = dict(named)
    assert len(graphs) == len(named)
    return graphs


def _shapes() -> Iterator[tuple[str, Graph]]:
    """Edges alone."""
    shapes = {
        "complete-200": nx.complete_graph(200),
        "complete-40": nx.complete_graph(40),
        "empty-30": nx.empty_graph(30),
        "one-node": nx.empty_graph(1),
        "two-nodes": nx.empty_graph(2),
        "pair": nx.path_graph(2),
        "triangle": nx.complete_graph(3),
        "path": nx.path_graph(30),
        "ring": nx.cycle_graph(30),
        "star": nx.star_graph(30),
        "stars": nx.disjoint_union(nx.star_graph(12), nx.star_graph(5)),
        "pairs": nx.disjoint_union_all([nx.path_graph(2)] * 15),
        "triangles-and-isolated": nx.disjoint_union(
            nx.disjoint_union_all([nx.complete_graph(3)] * 5), nx.empty_graph(20)
        ),
        "bipartite": nx.complete_bipartite_graph(10, 15),
        "barbell": nx.barbell_graph(12, 5),
        "tree": nx.balanced_tree(2, 4),
        "grid": nx.grid_2d_graph(5, 6),
        "wheel": nx.wheel_graph(20),
        "lollipop": nx.lollipop_graph(10, 20),
        "complete-and-isolated": nx.disjoint_union(nx.complete_graph(10), nx.empty_graph(300)),
    }
    for name, graph in shapes.items():
        yield name, {"adj_matrix": nx.to_numpy_array(graph)}
    ring = nx.to_numpy_array(nx.cycle_graph(20))
    yield "loops-and-multiples", {"adj_matrix": 3 * ring + np.eye(20)}
    yield "loops-alone", {"adj_matrix": np.eye(10)}
    yield "one-way", {"adj_matrix": np.triu(ring)}


def _features() -> Iterator[tuple[str, Graph]]:
    random = np.random.default_rng(0).random((40, 5))
    features = {
        "ones": np.ones((40, 5)),
        "zeros": np.zeros((40, 5)),
        "equal-rows": np.tile(random[0], (40, 1)),
        "two-kinds-of-rows": np.repeat(random[:2], 20, axis=0),
        "one-odd-row": np.vstack([np.zeros((39, 5)), random[:1]]),
        "constant-columns": np.hstack([random[:, :2], np.ones((40, 3))]),
        "one-column": random[:, :1],
        "negative": -random,
        "of-mixed-scale": random * 10.0 ** np.array([-30, -5, 0, 5, 30]),
    }
    features |= {f"of-scale-{scale:g}": scale * random for scale in SCALES}
    sparse = nx.to_numpy_array(nx.gnp_random_graph(40, 0.1, seed=0))
    for name, values in features.items():
        yield f"features-{name}", {"adj_matrix": sparse, "attr_matrix": values}
    nothing = np.zeros_like(sparse)
    for name in ("ones", "equal-rows", "of-scale-1e+20"):
        yield f"isolated-{name}", {"adj_matrix": nothing, "attr_matrix": features[name]}


def _labels() -> Iterator[tuple[str, Graph]]:
    """Labels; a classifier is trained where there are two classes."""
    complete, halves = nx.to_numpy_array(nx.complete_graph(30)), np.repeat([0, 1], 15)
    labels = {
        "one-class": np.zeros(30, dtype=np.int64),
        "one-labelled-node": np.where(np.arange(30) == 0, 0, -1),
        "train-halves": halves,
        "train-all-different": np.arange(30),
        "train-one-of-a-kind": (np.arange(30) == 0).astype(np.int64),
    }
    for name, values in labels.items():
        yield name, {"adj_matrix": complete, "labels": values}
    zeros, large = np.zeros((30, 2)), 1e20 * np.random.default_rng(0).random((30, 3))
    attributed = {
        "train-empty-zeros": (np.zeros((30, 30)), zeros),
        "train-complete-zeros": (complete, zeros),
        "train-complete-large": (complete, large),
    }
    for name, (matrix, values) in attributed.items():
        yield name, {"adj_matrix": matrix, "attr_matrix": values, "labels": halves}
    pair = nx.to_numpy_array(nx.path_graph(2))
    yield "train-pair", {"adj_matrix": pair, "labels": np.array([0, 1])}


def draw_pages(folder: Path) -> None:
    """Train on every graph of a folder and draw its page beside it, naming each before."""
    for path in sorted(folder.glob("*.npz")):
        print(path.stem, flush=True)
        command = "train" if path.stem.startswith("train") else "communities"
        succeed(command, path, *TINY, "-o", path.with_suffix(""))


if __name__ == "__main__":
    draw_pages(Path(sys.argv[1]))
