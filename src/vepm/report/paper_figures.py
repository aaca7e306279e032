"""The paper's figures, drawn from the arrays of finished runs."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, connected_components

from vepm.paper.experiments import slug
from vepm.paper.plan import Square
from vepm.paper.results import Results, Value, records
from vepm.report.communities import Floats, Ints, adjacency_matrix, bucket_order, interactions
from vepm.report.figures import (
    adjacency,
    confusion_grid,
    embedding_map,
    render,
    stack_communities,
    tsne,
)
from vepm.report.figures.style import WARNING, class_colours, community_colours, new_figure, styled

logger = logging.getLogger("vepm")

SUBGRAPH_NODES = 200
QUICK_POINTS = 200
POINTS = 1500

Arrays = dict[str, NDArray[Any]]
Drawn = dict[str, Figure]


def draw_figures(results: Results, squares: Sequence[Square], folder: Path) -> list[Path]:
    """Draw an experiment's figures beside its tables, as PNG and SVG.

    Args:
        results: the numbers.
        squares: the squares behind them.
        folder: where results lie.

    Returns:
        The paths written; none where the experiment is a table, or nothing was run.
    """
    name, kind = results.experiment.name, results.experiment.figure
    if kind is None:
        return []
    drawn = _reduced_labels(results) if kind == "curves" else {}
    for square in squares if kind != "curves" else ():
        found = records(square, folder)
        if found:
            arrays = {key: array.numpy() for key, array in found[0].arrays().items()}
            # Rows that differ in the preset alone have a figure each.
            own_row = "" if square.row in results.experiment.rows else f"-{square.row.preset}"
            start = f"{name}-{slug(square.column.name)}{own_row}"
            try:
                own = DRAWINGS[kind](arrays, results)
            except Exception as error:  # One failed figure must not cost the tables.
                logger.warning("%s: not drawn: %s", start, error)
                continue
            drawn |= {start + end: figure for end, figure in own.items()}
    paths: list[Path] = []
    for title, figure in drawn.items():
        if results.quick:
            figure.text(0.99, 0.01, "QUICK", ha="right", color=WARNING, fontsize=8)
        paths += render(figure, title).write(folder / name, title)
    return paths


def _whole_adjacency(arrays: Arrays, results: Results) -> Drawn:
    return {"": _partitioned(arrays["edge_index"], arrays["edge_weight"], arrays)}


def _subgraph(arrays: Arrays, results: Results) -> Drawn:
    edges = arrays["edge_index"]
    chosen = breadth_first(edges, len(arrays["z"]), SUBGRAPH_NODES)
    place = np.full(len(arrays["z"]), -1)
    place[chosen] = np.arange(len(chosen))
    inside = (place[edges] >= 0).all(axis=0)
    part = {**arrays, "z": arrays["z"][chosen]}
    return {"": _partitioned(place[edges[:, inside]], arrays["edge_weight"][inside], part)}


def breadth_first(edge_index: NDArray[Any], num_nodes: int, count: int) -> Ints:
    """The first nodes of a breadth-first search from the first node that reaches so many.

    Where no node reaches that many, it is the search that comes furthest.
    """
    graph = adjacency_matrix(edge_index, num_nodes)
    component = connected_components(graph)[1]
    size = np.bincount(component)[component]
    start = int(np.argmax(size >= min(count, size.max())))
    order = breadth_first_order(graph, start, return_predecessors=False)
    return order[:count].astype(np.int64)


def _partitioned(edges: Ints, shares: Floats, arrays: Arrays) -> Figure:
    """A and its parts, from the largest metacommunity to the smallest."""
    links = interactions(arrays["z"], arrays["activation"], shares.shape[1])
    sizes = np.bincount(links.argmax(axis=1), minlength=shares.shape[1])
    largest_first = np.argsort(-sizes, kind="stable")
    order, bucket = bucket_order(links[:, largest_first])
    names = [f"A({k + 1}): {sizes[c]} nodes" for k, c in enumerate(largest_first)]
    return adjacency(edges, shares[:, largest_first], order, bucket, names)


def _embeddings(arrays: Arrays, results: Results) -> Drawn:
    limit = QUICK_POINTS if results.quick else POINTS
    affiliations, rows = tsne(arrays["pretrained_z"], limit=limit)
    labels = arrays["y"][rows].astype(np.int64)
    classes = int(arrays["y"].max()) + 1
    stacked, community = stack_communities(arrays["community_embeddings"], limit=limit)
    points, kept = tsne(stacked, limit=limit)
    parts = int(community.max()) + 1
    return {
        "-affiliations": embedding_map(
            affiliations, labels, [f"class {c + 1}" for c in range(classes)],
            class_colours(classes), "Z after pretraining, by label",
        ),
        "-embeddings": embedding_map(
            points, community[kept], [f"metacommunity {k + 1}" for k in range(parts)],
            community_colours(parts), "Community embeddings after finetuning",
        ),
    }  # fmt: skip


def _confusion(arrays: Arrays, results: Results) -> Drawn:
    matrices = list(arrays["confusion"].astype(np.int64))
    hits = [100 * np.trace(matrix) / matrix.sum() for matrix in matrices]
    titles = [f"Community {k + 1}: {hit:.0f} %" for k, hit in enumerate(hits)]
    names = [str(c + 1) for c in range(len(matrices[0]))]
    return {"": confusion_grid(matrices, names, titles)}


DRAWINGS: dict[str, Callable[[Arrays, Results], Drawn]] = {
    "adjacency": _whole_adjacency,
    "subgraph": _subgraph,
    "tsne": _embeddings,
    "confusion": _confusion,
}


@styled
def _curves_figure(results: Results, datasets: list[str]) -> Figure:
    figure = new_figure(4.8 * len(datasets), 3.6)
    panels = figure.subplots(1, len(datasets), squeeze=False).ravel()
    drawn = [v for v in results.values if v.main is not None]
    # A method has one colour, whatever the panel.
    methods = list(dict.fromkeys(_method(v) for v in drawn))
    colours = dict(zip(methods, class_colours(len(methods)), strict=True))
    for axes, dataset in zip(panels, datasets, strict=True):
        _draw_curves(axes, results, [v for v in drawn if v.dataset == dataset], colours)
        axes.set_title(dataset)
    return figure


def _method(value: Value) -> str:
    return value.row.removeprefix(f"{value.dataset}, ")


def _reduced_labels(results: Results) -> Drawn:
    datasets = list(dict.fromkeys(v.dataset for v in results.values if v.main is not None))
    return {results.experiment.name: _curves_figure(results, datasets)} if datasets else {}


def _draw_curves(axes: Axes, results: Results, own: list[Value], colours: dict[str, str]) -> None:
    rates = {column.name: column.keep for column in results.experiment.columns}
    for method in dict.fromkeys(_method(v) for v in own):
        values = [v for v in own if _method(v) == method]
        means = [v.metric.scale * v.main.mean for v in values if v.main]
        errors = [v.metric.scale * v.main.standard_error for v in values if v.main]
        places = [100 * (rates[v.column] or 0.0) for v in values]
        colour = colours[method]
        axes.errorbar(places, means, errors, color=colour, marker="o", markersize=3.5, label=method)
    axes.set_xlabel("training labels kept (%)")
    axes.set_ylabel("accuracy (%)")
    axes.grid(axis="y")
    axes.legend(loc="lower right")
