"""The paper's figures, drawn from the arrays of finished runs."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.sparse.csgraph import breadth_first_order, connected_components

from vepm.paper.experiments import slug
from vepm.paper.plan import Square, Value
from vepm.paper.results import Results, records
from vepm.report.communities import bucket_order, induced, neighbours
from vepm.report.figures import adjacency, community_map, confusion_grid, embedding_map
from vepm.report.run import Array, Ints, interactions
from vepm.report.style import WARNING, class_colours, draw_svg, panels, styled, write_svg

logger = logging.getLogger("vepm")

SUBGRAPH_NODES = 200
DPI = 90

Arrays = dict[str, Array]
Drawn = dict[str, Figure]


def draw_figures(results: Results, squares: Sequence[Square], folder: Path) -> list[Path]:
    """Draw an experiment's figures, if it has any, beside its tables; gives the paths."""
    name, kind = results.experiment.name, results.experiment.figure
    if kind is None:
        return []
    drawn: Drawn = {}
    if kind == "curves":
        # All squares in one figure.
        drawn = {name: _reduced_labels(results)} if any(v.main for v in results.values) else {}
        squares = ()
    own_rows = {row.name for row in results.experiment.rows}
    for square in squares:
        if not (found := records(square, folder)):
            continue
        # Rows that differ in the preset alone have a figure each.
        own_row = "" if square.row in own_rows else f"-{square.preset}"
        start = f"{name}-{slug(square.column)}{own_row}"
        try:
            arrays = {key: array.numpy() for key, array in found[0].arrays().items()}
            own = DRAWINGS[kind](arrays)
        except FileNotFoundError:
            logger.warning("%s: not drawn: delete its cells and run again for its arrays", start)
        except Exception as error:  # One failed figure must not cost the tables.
            logger.warning("%s: not drawn: %s", start, error)
        else:
            drawn |= {start + end: figure for end, figure in own.items()}
    paths: list[Path] = []
    for title, figure in drawn.items():
        if results.quick:
            figure.text(0.99, 0.01, "QUICK", ha="right", color=WARNING, fontsize=8)
        paths.append(folder / name / f"{title}.svg")
        write_svg(paths[-1], draw_svg(figure, title, DPI))
    return paths


def _subgraph(arrays: Arrays) -> Drawn:
    z = arrays["drawn_z"]
    nodes = breadth_first(arrays["edge_index"], len(z), SUBGRAPH_NODES)
    inside, edges = induced(arrays["edge_index"], nodes, len(z))
    part = {"drawn_z": z[nodes], "edge_index": edges}
    return _partition(arrays | part | {"edge_weight": arrays["edge_weight"][inside]})


def breadth_first(edge_index: Array, num_nodes: int, count: int) -> Ints:
    """The first nodes of a breadth-first search from the first node that reaches the most."""
    graph = neighbours(edge_index, num_nodes)
    component = connected_components(graph)[1]
    size = np.bincount(component)[component]
    start = int(np.argmax(size >= min(count, size.max())))
    order = breadth_first_order(graph, start, return_predecessors=False)
    return order[:count].astype(np.int64)


def _partition(arrays: Arrays) -> Drawn:
    """A and its parts, from the largest metacommunity to the smallest."""
    shares = arrays["edge_weight"]
    links = interactions(arrays["drawn_z"], arrays["activation"], shares.shape[1])
    sizes = np.bincount(links.argmax(axis=1), minlength=shares.shape[1])
    largest_first = np.argsort(-sizes, kind="stable")
    order, bucket = bucket_order(links[:, largest_first])
    names = [f"A({k + 1}): {sizes[c]} nodes" for k, c in enumerate(largest_first)]
    return {"": adjacency(arrays["edge_index"], shares[:, largest_first], order, bucket, names)}


def _embeddings(arrays: Arrays) -> Drawn:
    labels = arrays["y"].astype(np.int64)
    classes = [f"label {c + 1}" for c in range(int(labels.max()) + 1)]
    parts = arrays["community_embeddings"].shape[1]
    colours, names = class_colours(len(classes)), [f"metacommunity {k + 1}" for k in range(parts)]
    titles = "Z after pretraining, by label", "Community embeddings after finetuning"
    return {
        "-affiliations": embedding_map(arrays["pretrained_z"], labels, classes, colours, titles[0]),
        "-embeddings": community_map(arrays["community_embeddings"], names, titles[1]),
    }


def _confusion(arrays: Arrays) -> Drawn:
    matrices = list(arrays["confusion"].astype(np.int64))
    hits = [100 * np.trace(matrix) / matrix.sum() for matrix in matrices]
    titles = [f"Community {k + 1}: {hit:.0f} %" for k, hit in enumerate(hits)]
    names = [str(c + 1) for c in range(len(matrices[0]))]
    return {"": confusion_grid(matrices, names, titles)}


DRAWINGS: dict[str, Callable[[Arrays], Drawn]] = {
    "adjacency": _partition,
    "subgraph": _subgraph,
    "tsne": _embeddings,
    "confusion": _confusion,
}


@styled
def _reduced_labels(results: Results) -> Figure:
    """A panel of curves for each dataset; a method has one colour, whatever the panel."""
    drawn = [value for value in results.values if value.main is not None]
    datasets = list(dict.fromkeys(value.dataset for value in drawn))
    methods = list(dict.fromkeys(map(_method, drawn)))
    kept = {column.name: 100 * (column.keep or 0.0) for column in results.experiment.columns}
    figure, every = panels(len(datasets), len(datasets), 3.6)
    for axes, dataset in zip(every, datasets, strict=True):
        for method, colour in zip(methods, class_colours(len(methods)), strict=True):
            points = [
                (kept[v.column], 100 * v.main.mean, 100 * v.main.standard_error)
                for v in drawn
                if v.main and (v.dataset, _method(v)) == (dataset, method)
            ]
            if points:
                places, means, errors = zip(*points, strict=True)
                axes.errorbar(places, means, errors, color=colour, marker="o", label=method)
        axes.set_title(dataset)
        axes.set(xlabel="training labels kept (%)", ylabel="accuracy (%)")
        axes.grid(axis="y")
        axes.legend(loc="lower right")
    return figure


def _method(value: Value) -> str:
    return value.row.removeprefix(f"{value.dataset}, ")
