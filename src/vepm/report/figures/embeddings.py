"""Maps of what was learned."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from vepm.report.figures import style
from vepm.report.run import Floats, Ints

MOST_NAMED = 20
"""Entries of a legend."""
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
    rows = style.sample(len(values), limit, seed)
    kept = np.asarray(values[rows], dtype=np.float64)
    # TSNE divides by the spread of its input and squares distances in single precision. Equal rows
    # and very large or very small entries make that NaN, on which its tree crashes the process.
    scale = float(np.abs(kept).max(initial=0.0)) or 1.0
    distinct, place = np.unique(np.round(kept / scale, DIGITS), axis=0, return_inverse=True)
    if len(distinct) < FEWEST_POINTS:
        raise ValueError(f"t-SNE needs {FEWEST_POINTS} distinct points, not {len(distinct)}")
    distinct = distinct - distinct.mean(axis=0)
    reducer = TSNE(
        perplexity=min(30.0, (len(distinct) - 1) / 3),
        init="random" if distinct.shape[1] < 2 else "pca",
        random_state=seed,
        max_iter=750,
    )
    # Its threads wait on one another: one thread is several times faster on a busy machine.
    with threadpool_limits(1):
        found = reducer.fit_transform((distinct / np.abs(distinct).max()).astype(np.float32))
    return np.asarray(found, dtype=np.float64)[place.ravel()], rows


@style.styled
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
    figure = style.new_figure(5.6, 3.9)
    axes = figure.subplots()
    names, colours = [*names, "unknown"], [*colours, style.UNKNOWN]
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
    dots = [
        Line2D([], [], marker="o", linestyle="", color=colours[c], markersize=6)
        for c in present[:MOST_NAMED]
    ]
    labels = [style.shorten(names[c]) for c in present[:MOST_NAMED]]
    if len(present) > MOST_NAMED:
        dots.append(Line2D([], [], linestyle=""))
        labels.append(f"and {len(present) - MOST_NAMED} more")
    axes.legend(dots, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderpad=0)
    return figure


def community_map(
    community_embeddings: Floats, names: Sequence[str], title: str, limit: int = MOST_POINTS
) -> Figure:
    """The t-SNE of what each metacommunity knows of each node [N, K, D], one dot for each."""
    count, communities, width = community_embeddings.shape
    # All communities of some nodes.
    rows = style.sample(count, max(limit // communities, 1), seed=0)
    values, community = community_embeddings[rows].reshape(-1, width), np.arange(communities)
    colours = style.community_colours(len(names))
    return embedding_map(values, np.tile(community, len(rows)), names, colours, title, limit)
