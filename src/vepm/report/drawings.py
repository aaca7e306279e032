"""Which figures a run calls for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import confusion_matrix

from vepm.report import figures
from vepm.report.communities import Ints, bucket_order
from vepm.report.figures.style import class_colours, community_colours
from vepm.report.run import Run
from vepm.report.summary import chosen_epoch

LARGEST_PICTURED_GRAPH = 400


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn, the file name it goes by and a description for screen readers."""

    name: str
    draw: Callable[[], Figure]
    """Raises an exception whose message says why, where there is nothing to draw."""
    description: str


def plan_drawings(run: Run) -> Iterator[Drawing]:
    """Every figure for which the run has data."""
    if len(run.history["epoch"]):
        yield Drawing(
            "learning_curves",
            lambda: figures.learning_curves(run.history, chosen_epoch(run)),
            "Loss, ELBO terms and accuracies by epoch.",
        )
    yield Drawing(
        "adjacency",
        lambda: _adjacency(run),
        "Adjacency matrix, and its parts by community, nodes sorted by community.",
    )
    yield _memberships_map(run)
    if run.community_embeddings is not None:
        yield Drawing(
            "tsne_communities",
            lambda: _communities_map(run),
            "t-SNE of the community embeddings, coloured by community.",
        )
    yield from _quality(run)


def _adjacency(run: Run) -> Figure:
    nodes = np.arange(run.num_nodes) if run.batch is None else pictured_graph(run)
    order, bucket = bucket_order(run.interaction[nodes])
    place = np.full(run.num_nodes, -1)
    place[nodes] = np.arange(len(nodes))
    inside = (place[run.edge_index] >= 0).all(axis=0)
    edges, shares = place[run.edge_index[:, inside]], run.edge_weight[inside]
    return figures.adjacency(edges, shares, order, bucket)


def pictured_graph(run: Run) -> Ints:
    """Nodes of the largest graph that a picture can hold."""
    assert run.batch is not None
    sizes = np.bincount(run.batch)
    fits = sizes <= LARGEST_PICTURED_GRAPH
    chosen = np.where(fits, sizes, 0).argmax() if fits.any() else sizes.argmin()
    return np.flatnonzero(run.batch == chosen)


def _memberships_map(run: Run) -> Drawing:
    labels = run.labels if run.batch is None or run.labels is None else run.labels[run.batch]
    if labels is not None and (labels >= 0).any():
        category, names = labels, list(run.class_names)
        colours = class_colours(len(names))
        by = "label" if run.batch is None else "label of the graph"
    else:
        category, names = run.interaction.argmax(axis=1), run.community_names
        colours, by = community_colours(len(names)), "main community"

    def draw() -> Figure:
        points, rows = figures.tsne(run.memberships)
        title = f"Memberships Z, by {by}"
        return figures.embedding_map(points, category[rows], names, colours, title)

    return Drawing("tsne_memberships", draw, f"t-SNE of the memberships, coloured by {by}.")


def _communities_map(run: Run) -> Figure:
    assert run.community_embeddings is not None
    values, community = figures.stack_communities(run.community_embeddings)
    points, rows = figures.tsne(values)
    names = run.community_names
    return figures.embedding_map(
        points, community[rows], names, community_colours(len(names)), "What each community knows"
    )


def _quality(run: Run) -> Iterator[Drawing]:
    if run.labels is None or run.prediction is None or "test" not in run.masks:
        return
    labels, prediction = run.labels, run.prediction
    test = run.masks["test"] & (labels >= 0)
    if not test.any():
        return
    yield Drawing(
        "confusion",
        lambda: figures.confusion_matrix(
            confusion_matrix(labels[test], prediction[test], labels=range(len(run.class_names))),
            run.class_names,
            f"{test.sum():,} test {run.task}s",
        ),
        "Confusion matrix on test.",
    )
    if run.probabilities is not None:
        confidence = run.probabilities.max(axis=1)[test]
        yield Drawing(
            "reliability",
            lambda: figures.reliability(confidence, (prediction == labels)[test]),
            "Accuracy against confidence on test.",
        )
