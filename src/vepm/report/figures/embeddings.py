"""Maps of what was learned."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from vepm.report.figures.style import (
    UNKNOWN,
    category_legend,
    community_colours,
    new_figure,
    sample,
    styled,
)
from vepm.report.run import Floats, Ints

MOST_POINTS = 1500
FEWEST_POINTS = 4
DIGITS = 6
"""Decimals, relative to the largest entry, to which rows must differ to be distinct."""


def tsne(values: Floats, seed: int = 0, limit: int = MOST_POINTS) -> tuple[Floats, Ints]:
    """Positions in the plane by t-SNE; equal rows share a position.

    Args:
        values: One row per point [N, D].
        seed: Seed of the sample and of the optimisation.
        limit: Points to keep; more are sampled down.

    Returns:
        Positions [n, 2] and the rows they belong to [n].

    Raises:
        ValueError: Fewer than four rows are distinct.
    """
    rows = sample(len(values), limit, seed)
    distinct, place = _distinct(np.asarray(values[rows], dtype=np.float64))
    reducer = TSNE(
        perplexity=min(30.0, (len(distinct) - 1) / 3),
        init="random" if distinct.shape[1] < 2 else "pca",
        random_state=seed,
        max_iter=750,
    )
    # Its threads wait on one another: one thread is several times faster on a busy machine.
    with threadpool_limits(1):
        points = np.asarray(reducer.fit_transform(distinct), dtype=np.float64)
    return points[place], rows


def _distinct(values: Floats) -> tuple[NDArray[np.float32], Ints]:
    """Distinct rows, centred, with a largest entry of one; and which of them each row is.

    TSNE divides by the spread of its input and squares distances in single precision. Equal rows
    and very large or very small entries make that NaN, on which its tree crashes the process.
    """
    scale = float(np.abs(values).max(initial=0.0)) or 1.0
    distinct, place = np.unique(np.round(values / scale, DIGITS), axis=0, return_inverse=True)
    if len(distinct) < FEWEST_POINTS:
        raise ValueError(f"t-SNE needs {FEWEST_POINTS} distinct points, not {len(distinct)}")
    distinct = distinct - distinct.mean(axis=0)
    return (distinct / np.abs(distinct).max()).astype(np.float32), place.ravel()


@styled
def embedding_map(
    values: Floats,
    category: Ints,
    names: Sequence[str],
    colours: Sequence[str],
    title: str,
    limit: int = MOST_POINTS,
) -> Figure:
    """The t-SNE of values [N, D], coloured by category; -1 is drawn in grey."""
    points, rows = tsne(values, limit=limit)
    category = category[rows]
    figure = new_figure(5.6, 3.9)
    axes = figure.subplots()
    names, colours = [*names, "unknown"], [*colours, UNKNOWN]
    # A random order lets no category hide another.
    order = np.random.default_rng(0).permutation(len(points))
    size = float(np.clip(9000 / max(len(points), 1), 5, 40))
    shades = to_rgba_array(colours)[category[order]]
    x, y = points[order].T
    axes.scatter(x, y, s=size, c=shades, alpha=0.8, linewidths=0, rasterized=True)
    axes.set_title(title)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_axis_off()
    present = [c for c in (*range(len(names) - 1), -1) if (category == c).any()]
    category_legend(axes, [names[c] for c in present], [colours[c] for c in present])
    return figure


def community_map(
    community_embeddings: Floats, names: Sequence[str], title: str, limit: int = MOST_POINTS
) -> Figure:
    """The t-SNE of what each metacommunity knows of each node [N, K, D], one dot for each."""
    values, community = _stack(community_embeddings, limit)
    return embedding_map(values, community, names, community_colours(len(names)), title, limit)


def _stack(community_embeddings: Floats, limit: int) -> tuple[Floats, Ints]:
    """One row per node and metacommunity, of whole nodes, and the metacommunity of each row."""
    count, communities, width = community_embeddings.shape
    rows = sample(count, max(limit // communities, 1), seed=0)
    stacked = community_embeddings[rows].reshape(-1, width)
    return stacked, np.tile(np.arange(communities), len(rows))
