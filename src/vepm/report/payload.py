"""What the page's script draws from, as plain JSON, and where it draws the nodes."""

import json
from typing import Any

import networkx as nx
import numpy as np
from scipy.sparse.csgraph import shortest_path
from scipy.spatial import cKDTree
from scipy.special import expit

from vepm.report.checks import SPLITS
from vepm.report.communities import adjacency_matrix, images, part_of_each, pixel_grid, shares
from vepm.report.excerpt import Excerpt, starting_node
from vepm.report.figures.style import class_colours, community_colours
from vepm.report.run import Floats, Ints, Run
from vepm.report.summary import UNSURE

MOST_CLASSES = 6
MOST_PIXELS = 400_000
SMALL = 60
"""Up to so many nodes, distances on paper follow the lengths of shortest paths."""
STEPS = 300
NEAR, FAR = 8, 6


def build_payload(run: Run, excerpt: Excerpt) -> dict[str, Any]:
    """Nodes, edges and items of the excerpt, rounded to what a reader can see."""
    count = run.num_metacommunities
    return {
        "task": run.task,
        "totalNodes": run.num_nodes,
        "classes": list(run.class_names),
        "classColours": class_colours(len(run.class_names)),
        "communities": run.community_names,
        "colours": community_colours(count),
        "partOf": part_of_each(run.memberships.shape[1], run.grouping).tolist(),
        "activation": [_short(value) for value in run.activation.tolist()],
        "density": _density(run),
        "unsure": 100 * UNSURE,
        "start": starting_node(run, excerpt),
        "nodes": _nodes(run, excerpt),
        "edges": {
            "source": excerpt.source.tolist(),
            "target": excerpt.target.tolist(),
            "share": _percent(excerpt.edge_weight),
        },
        "items": _items(run, excerpt),
    }


def _density(run: Run) -> float:
    """Edges over pairs of nodes of the same graph."""
    sizes = np.bincount(np.zeros(run.num_nodes, dtype=int) if run.batch is None else run.batch)
    pairs = float((sizes * (sizes - 1) / 2).sum())
    return run.edge_index.shape[1] / 2 / pairs if pairs else 0.0


def embed_json(payload: dict[str, Any]) -> str:
    """JSON that no HTML parser can mistake for markup."""
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _nodes(run: Run, excerpt: Excerpt) -> dict[str, Any]:
    start = run.memberships[excerpt.nodes]
    positions = _positions(excerpt, start)
    part = shares(run.interaction[excerpt.nodes])
    return {
        "name": [run.node_names[n] for n in excerpt.nodes],
        "x": positions[:, 0].round(2).tolist(),
        "y": positions[:, 1].round(2).tolist(),
        "graph": excerpt.graph.tolist() if run.batch is not None else None,
        "main": run.interaction[excerpt.nodes].argmax(axis=1).tolist(),
        "part": _percent(part),
        "z": [[_short(v) for v in row] for row in start.tolist()],
        **_images(run, excerpt),
    }


def _positions(excerpt: Excerpt, start: Floats) -> Floats:
    """The whole graph at once, or each graph of a set by itself."""
    edges = np.stack([excerpt.source, excerpt.target])
    positions = np.zeros((len(start), 2))
    for graph in np.unique(excerpt.graph):
        nodes = np.flatnonzero(excerpt.graph == graph)
        inside = np.searchsorted(nodes, edges[:, excerpt.graph[excerpt.source] == graph])
        positions[nodes] = layout(inside, len(nodes), start[nodes])
    return positions


def _images(run: Run, excerpt: Excerpt) -> dict[str, Any]:
    """Every node as a small picture, where its features are the pixels of one."""
    grid = pixel_grid(run.feature_names)
    if grid is None or run.features is None or len(excerpt.nodes) * grid[0] * grid[1] > MOST_PIXELS:
        return {}
    return {"grid": grid, "image": images(run.features[excerpt.nodes])}


def _items(run: Run, excerpt: Excerpt) -> dict[str, Any]:
    items = excerpt.items
    content: dict[str, Any] = {"split": _split(run)[items].tolist()}
    if run.batch is not None:
        content["name"] = [run.graph_names[g] for g in items]
    if run.labels is not None:
        content["label"] = run.labels[items].tolist()
    if run.prediction is not None:
        content["prediction"] = run.prediction[items].tolist()
    if run.probabilities is not None:
        content["probabilities"] = _likeliest(run.probabilities[items])
    if run.log_odds is not None and run.log_odds_without is not None:
        content["support"] = _support(run, items)
    return content


def _split(run: Run) -> Ints:
    """0 for none, 1 for train, 2 for val, 3 for test."""
    split = np.zeros(run.num_items, dtype=np.int64)
    for number, name in enumerate(SPLITS, 1):
        if name in run.masks:
            split[run.masks[name]] = number
    return split


def _likeliest(probabilities: Floats) -> list[list[list[float]]]:
    """Per item the likeliest classes, each with its probability in percent."""
    best = np.argsort(-probabilities, axis=1, kind="stable")[:, :MOST_CLASSES]
    return [
        [[int(c), round(100 * float(row[c]), 1)] for c in order]
        for row, order in zip(probabilities, best, strict=True)
    ]


def _support(run: Run, items: Ints) -> list[list[list[float]]]:
    """Per item and metacommunity: its support in log-odds; probability and class without it."""
    assert run.log_odds is not None
    assert run.log_odds_without is not None
    assert run.label_without is not None
    without = run.log_odds_without[items]
    support = (run.log_odds[items, None] - without).round(2)
    percent = (100 * expit(without)).round(1)
    columns = np.stack([support, percent, run.label_without[items]], axis=2)
    rows: list[list[list[float]]] = columns.tolist()
    return rows


def _percent(share: Floats) -> list[list[int]]:
    rounded: list[list[int]] = (100 * share).round().astype(int).tolist()
    return rounded


def _short(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")


def layout(edge_index: Ints, num_nodes: int, start: Floats, seed: int = 0) -> Floats:
    """Positions [N, 2], about one unit between neighbours.

    Small graphs are laid out by Kamada and Kawai's method. In large ones there are springs along
    edges, repulsion from the nearest and from random nodes, and a pull to the middle. NetworkX's
    spring layout compares all pairs of nodes: ten times slower for 4,000 of them.

    Args:
        edge_index: Each edge once [2, E].
        num_nodes: Number of nodes.
        start: Values per node [N, D] from which to start, such as memberships.
        seed: Seed of the sampled forces.
    """
    if num_nodes <= SMALL:
        return _by_path_lengths(edge_index, num_nodes)
    random = np.random.default_rng(seed)
    position = _project(start, num_nodes, random)
    source, target = np.hstack([edge_index, edge_index[::-1]])
    degree = np.maximum(np.bincount(source, minlength=num_nodes), 1)
    stiffness = 0.8 / np.sqrt(np.minimum(degree[source], degree[target]))[:, None]
    for step in range(STEPS):
        spring = position[target] - position[source]
        length = np.linalg.norm(spring, axis=1, keepdims=True)
        move = _scatter(source, spring * np.minimum(length, 4) * stiffness, num_nodes)
        move += _repulsion(position, random) - _gravity(position)
        speed = np.linalg.norm(move, axis=1, keepdims=True)
        heat = np.sqrt(num_nodes) * 0.05 * (1 - step / STEPS) + 0.02
        position = position + move / np.maximum(speed, 1e-9) * np.minimum(speed, heat)
    return position - position.mean(axis=0)


def _by_path_lengths(edge_index: Ints, num_nodes: int) -> Floats:
    graph = adjacency_matrix(edge_index, num_nodes)
    length = shortest_path(graph, directed=False, unweighted=True)
    known = np.isfinite(length)
    length[~known] = length[known].max() + 2
    distances = {node: dict(enumerate(row)) for node, row in enumerate(length.tolist())}
    found = nx.kamada_kawai_layout(nx.empty_graph(num_nodes), dist=distances)
    position = np.array([found[node] for node in range(num_nodes)])
    gap = np.linalg.norm(position[edge_index[0]] - position[edge_index[1]], axis=1)
    return position / (gap.mean() if len(gap) else 0.5)


def _gravity(position: Floats) -> Floats:
    """A pull to the middle that grows outwards, so that long branches curl up."""
    slope = np.linalg.norm(position, axis=1, keepdims=True) / np.sqrt(len(position))
    return 0.35 * position * np.minimum(slope, 1.5)


def _project(start: Floats, size: int, random: np.random.Generator) -> Floats:
    """The two main directions of the starting values, spread over a disc of unit density."""
    scaled = start / (np.abs(start).max() or 1.0)
    centred = scaled - scaled.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    planar = centred @ axes[:, -2:]
    if planar.shape[1] < 2:
        planar = np.hstack([planar, np.zeros((size, 2 - planar.shape[1]))])
    planar = planar / max(float(planar.std()), 1e-9) * np.sqrt(size) / 3
    spread: Floats = planar + random.normal(scale=1.0, size=planar.shape)
    return spread


def _repulsion(position: Floats, random: np.random.Generator) -> Floats:
    size = len(position)
    near = cKDTree(position).query(position, k=range(2, min(NEAR + 1, size) + 1))[1]
    far = random.integers(size, size=(size, FAR))
    return _push(position, np.asarray(near), 1.5) + _push(position, far, 0.25 * size / FAR)


def _push(position: Floats, others: Ints, strength: float) -> Floats:
    gap = position[:, None] - position[others]
    pushed: Floats = strength * (gap / (np.square(gap).sum(2, keepdims=True) + 0.05)).sum(1)
    return pushed


def _scatter(index: Ints, values: Floats, size: int) -> Floats:
    return np.stack([np.bincount(index, values[:, axis], size) for axis in (0, 1)], axis=1)
