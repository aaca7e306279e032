"""Which figures a run calls for."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from vepm.report import figures
from vepm.report.communities import bucket_order, community_table
from vepm.report.palette import class_colours, community_colours
from vepm.report.run import Run
from vepm.report.scores import Probe, confusion
from vepm.report.summary import chosen_epoch

Floats = NDArray[np.float64]
LARGEST_PICTURED_GRAPH = 400


@dataclass(frozen=True)
class Drawing:
    """A figure, the file name it goes by and what it says to those who cannot see it."""

    name: str
    figure: Figure
    description: str


def draw_run(run: Run, interaction: Floats, probes: list[Probe]) -> Iterator[Drawing]:
    """Every figure for which the run has data."""
    if len(run.history["epoch"]):
        yield Drawing(
            "learning_curves",
            figures.learning_curves(run.history, chosen_epoch(run)),
            "Loss, ELBO terms and accuracies by epoch.",
        )
    yield _adjacency(run, interaction)
    yield _memberships_map(run, interaction)
    if run.community_embeddings is not None:
        yield _communities_map(run)
    yield from _quality(run, probes)
    table = community_table(interaction, run.member, run.edge_index, run.edge_weight, run.batch)
    yield Drawing(
        "communities",
        figures.community_overview(table),
        "Size, density and overlap of each community; the table below has the numbers.",
    )


def _adjacency(run: Run, interaction: Floats) -> Drawing:
    nodes = np.arange(run.num_nodes) if run.batch is None else pictured_graph(run)
    order, bucket = bucket_order(interaction[nodes])
    place = np.full(run.num_nodes, -1)
    place[nodes] = np.arange(len(nodes))
    inside = (place[run.edge_index] >= 0).all(axis=0)
    return Drawing(
        "adjacency",
        figures.adjacency(place[run.edge_index[:, inside]], run.edge_weight[inside], order, bucket),
        "Adjacency matrix, and its parts by community, nodes sorted by community.",
    )


def pictured_graph(run: Run) -> NDArray[np.int64]:
    """Nodes of the largest graph that a picture can hold."""
    assert run.batch is not None
    sizes = np.bincount(run.batch)
    fits = sizes <= LARGEST_PICTURED_GRAPH
    chosen = np.where(fits, sizes, 0).argmax() if fits.any() else sizes.argmin()
    return np.flatnonzero(run.batch == chosen)


def _memberships_map(run: Run, interaction: Floats) -> Drawing:
    points, rows = figures.tsne(run.memberships)
    labels = run.labels if run.batch is None or run.labels is None else run.labels[run.batch]
    if labels is not None and (labels[rows] >= 0).any():
        category, names = labels[rows], list(run.class_names)
        colours, by = class_colours(len(names)), "label"
        by = "label of the graph" if run.batch is not None else by
    else:
        category = interaction.argmax(axis=1)[rows]
        names = [f"Community {k + 1}" for k in range(run.num_metacommunities)]
        colours, by = community_colours(len(names)), "main community"
    figure = figures.embedding_map(points, category, names, colours, f"Memberships Z, by {by}")
    return Drawing("tsne_memberships", figure, f"t-SNE of the memberships, coloured by {by}.")


def _communities_map(run: Run) -> Drawing:
    assert run.community_embeddings is not None
    values, community = figures.stack_communities(run.community_embeddings)
    points, rows = figures.tsne(values)
    names = [f"Community {k + 1}" for k in range(run.num_metacommunities)]
    figure = figures.embedding_map(
        points, community[rows], names, community_colours(len(names)), "What each community knows"
    )
    return Drawing(
        "tsne_communities", figure, "t-SNE of the community embeddings, coloured by community."
    )


def _quality(run: Run, probes: list[Probe]) -> Iterator[Drawing]:
    if run.labels is None or run.prediction is None or "test" not in run.masks:
        return
    test = run.masks["test"] & (run.labels >= 0)
    if not test.any():
        return
    names = run.class_names
    matrix = confusion(run.labels[test], run.prediction[test], len(names))
    title = f"{test.sum():,} test {run.task}s"
    yield Drawing(
        "confusion", figures.confusion_matrix(matrix, names, title), "Confusion matrix on test."
    )
    if run.probabilities is not None:
        right = run.prediction == run.labels
        figure = figures.reliability(run.probabilities.max(axis=1)[test], right[test])
        yield Drawing("reliability", figure, "Accuracy against confidence on test.")
    if probes:
        titles = [f"Community {k} · {100 * p.accuracy:.0f} %" for k, p in enumerate(probes, 1)]
        figure = figures.confusion_grid([p.confusion for p in probes], names, titles)
        yield Drawing("confusion_by_community", figure, "Confusion matrix of each community.")
