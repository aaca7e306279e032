"""What the page's script draws from, as plain JSON."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from vepm.report.communities import part_of_each, shares
from vepm.report.conclusion import UNSURE
from vepm.report.excerpt import Excerpt, starting_node
from vepm.report.layout import layout
from vepm.report.names import MOST_PIXELS, images, pixel_grid
from vepm.report.palette import class_colours, community_colours
from vepm.report.run import SPLITS, Run
from vepm.report.summary import edge_density

Floats = NDArray[np.float64]
MOST_CLASSES = 6


def build_payload(run: Run, excerpt: Excerpt, interaction: Floats) -> dict[str, Any]:
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
        "density": edge_density(run),
        "unsure": 100 * UNSURE,
        "start": starting_node(run, excerpt, interaction),
        "nodes": _nodes(run, excerpt, interaction),
        "edges": {
            "source": excerpt.source.tolist(),
            "target": excerpt.target.tolist(),
            "share": _percent(excerpt.edge_weight),
        },
        "items": _items(run, excerpt),
    }


def embed_json(payload: dict[str, Any]) -> str:
    """JSON that no HTML parser can mistake for markup."""
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _nodes(run: Run, excerpt: Excerpt, interaction: Floats) -> dict[str, Any]:
    start = run.memberships[excerpt.nodes]
    positions = _positions(excerpt, start)
    part = shares(interaction[excerpt.nodes])
    return {
        "name": [run.node_names[n] for n in excerpt.nodes],
        "x": positions[:, 0].round(2).tolist(),
        "y": positions[:, 1].round(2).tolist(),
        "graph": excerpt.graph.tolist() if run.batch is not None else None,
        "main": interaction[excerpt.nodes].argmax(axis=1).tolist(),
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


def _split(run: Run) -> NDArray[np.int64]:
    """0 for none, 1 for train, 2 for val, 3 for test."""
    length = run.num_nodes if run.batch is None else run.num_graphs
    split = np.zeros(length, dtype=np.int64)
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


def _support(run: Run, items: NDArray[np.int64]) -> list[list[list[float]]]:
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
