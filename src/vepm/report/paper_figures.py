"""The paper's figures, drawn from the arrays of finished runs."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from vepm.paper.experiments import slug
from vepm.paper.plan import Square
from vepm.paper.results import Results, records
from vepm.report import figures
from vepm.report.payload import breadth_first, induced
from vepm.report.run import Array, interactions
from vepm.report.style import WARNING, class_colours, draw_svg, write_svg

logger = logging.getLogger("vepm")

SUBGRAPH_NODES = 200
DPI = 90

Arrays = dict[str, Array]
Drawn = dict[str, Figure]


def draw_figures(results: Results, squares: Sequence[Square], folder: Path) -> list[Path]:
    """Draw an experiment's figures, if it has any, next to its tables; returns their paths."""
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


def _partition(arrays: Arrays) -> Drawn:
    """A and its parts, from the largest metacommunity to the smallest."""
    edges, shares = arrays["edge_index"], arrays["edge_weight"]
    links = interactions(arrays["drawn_z"], arrays["activation"], shares.shape[1])
    sizes = np.bincount(links.argmax(axis=1), minlength=shares.shape[1])
    largest_first = np.argsort(-sizes, kind="stable")
    order = figures.bucket_order(links[:, largest_first])
    names = [f"A({k + 1}): {sizes[c]} nodes" for k, c in enumerate(largest_first)]
    return {"": figures.adjacency(edges, shares[:, largest_first], *order, names)}


def _embeddings(arrays: Arrays) -> Drawn:
    labels = arrays["y"].astype(np.int64)
    classes = [f"label {c + 1}" for c in range(int(labels.max()) + 1)]
    colours, embeddings = class_colours(len(classes)), arrays["community_embeddings"]
    names = [f"metacommunity {k + 1}" for k in range(embeddings.shape[1])]
    by_label = labels, classes, colours, "Z after pretraining, by label"
    after = "Community embeddings after finetuning"
    return {
        "-affiliations": figures.embedding_map(arrays["pretrained_z"], *by_label),
        "-embeddings": figures.community_map(embeddings, names, after),
    }


def _confusion(arrays: Arrays) -> Drawn:
    matrices = list(arrays["confusion"].astype(np.int64))
    hits = [100 * np.trace(matrix) / matrix.sum() for matrix in matrices]
    titles = [f"Community {k + 1}: {hit:.0f} %" for k, hit in enumerate(hits)]
    names = [str(c + 1) for c in range(len(matrices[0]))]
    return {"": figures.confusion_grid(matrices, names, titles)}


DRAWINGS: dict[str, Callable[[Arrays], Drawn]] = {
    "adjacency": _partition,
    "subgraph": _subgraph,
    "tsne": _embeddings,
    "confusion": _confusion,
}


def _reduced_labels(results: Results) -> Figure:
    """A panel of curves for each dataset, over the share of the training labels."""
    kept = {column.name: 100 * (column.keep or 0.0) for column in results.experiment.columns}
    points: list[figures.Point] = []
    for value in results.values:
        if (main := value.main) is not None:
            curve = value.row.removeprefix(f"{value.dataset}, ")
            percent = 100 * main.mean, 100 * main.standard_error
            points.append((value.dataset, curve, kept[value.column], *percent))
    return figures.error_bars(points, "training labels kept (%)", "accuracy (%)")
