"""Adjacency matrices, whole and partitioned, and confusion matrices."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba, to_rgba_array
from matplotlib.figure import Figure

from vepm.report.figures import style
from vepm.report.run import Floats, Ints

MOST_DOTS = 200_000
MOST_NUMBERED = 12
WHOLE = "#5B6B7F"


@style.styled
def adjacency(
    edge_index: Ints,
    edge_weight: Floats,
    order: Ints,
    bucket: Ints | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> Figure:
    r"""A and :math:`A^{(1)}, \dots, A^{(K)}` as panels; a dot is an edge, as dark as its share.

    Args:
        edge_index: Edges [2, E] in both directions.
        edge_weight: Share of each edge in each metacommunity [E, K].
        order: Nodes in the order in which to draw them [N].
        bucket: Metacommunity of each node [N], to rule off and label the blocks.
        names: Titles of the K panels.
        seed: Seed of the sample of edges drawn, beyond 200,000.
    """
    count = edge_weight.shape[1]
    names = names or [f"Community {k}" for k in range(count)]
    total = edge_index.shape[1]
    kept = style.sample(total, MOST_DOTS, seed)
    edge_index, edge_weight = edge_index[:, kept], edge_weight[kept]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    row, column = place[edge_index]
    columns = min(count + 1, 3 if count < 9 else 5)
    figure, all_axes = style.panels(count + 1, columns, 9.6 / columns, 0.1)
    size = float(np.clip((72 * 8.6 / columns / max(len(order), 1)) ** 2, 0.7, 60))
    # There are two dots to an edge.
    drawn = "all" if len(kept) == total else f"{len(kept) / total:.0%} of"
    titles = [f"A: {drawn} {total // 2:,} edges", *names]
    shares, colours = [np.ones(len(row)), *edge_weight.T], [WHOLE, *style.community_colours(count)]
    for axes, title, share, colour in zip(all_axes, titles, shares, colours, strict=True):
        seen = share > 0.02
        shades = to_rgba_array([colour] * seen.sum(), np.clip(share[seen], 0, 1))
        dots = axes.scatter(column[seen], row[seen], s=size, c=shades, marker="s", linewidths=0)
        dots.set_rasterized(True)
        axes.set_title(title)
        axes.set(xlim=(-0.5, len(order) - 0.5), ylim=(len(order) - 0.5, -0.5), aspect="equal")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(True)
        if bucket is not None:
            _rule_off(axes, bucket[order])
    return figure


def _rule_off(axes: Axes, buckets: Ints) -> None:
    """A line between blocks, and the number of each block beside its middle."""
    blocks, first, size = np.unique(buckets, return_index=True, return_counts=True)
    for boundary in first[1:] - 0.5:
        axes.axhline(boundary, color=style.MUTED, linewidth=0.4, alpha=0.7)
        axes.axvline(boundary, color=style.MUTED, linewidth=0.4, alpha=0.7)
    middle = first + (size - 1) / 2
    wide = size > len(buckets) / 30
    labels = [str(k) for k in blocks[wide]]
    axes.set_xticks(middle[wide], labels)
    axes.set_yticks(middle[wide], labels)
    axes.tick_params(length=0, labelsize=7.0, pad=2)


@style.styled
def confusion_matrix(matrix: Ints, names: Sequence[str], title: str = "") -> Figure:
    """One confusion matrix [true, predicted], shaded by row share, with counts."""
    side = min(2.8 + 0.26 * len(names), 9.0)
    figure = style.new_figure(side + 0.4, side)
    axes = figure.subplots()
    share = _shade(axes, matrix, style.ACCENT)
    for row, column in np.argwhere(matrix > 0) if len(names) <= MOST_NUMBERED else ():
        count, ink = matrix[row, column], "white" if share[row, column] > 0.55 else style.INK
        axes.text(column, row, f"{count:,}", ha="center", va="center", fontsize=8, color=ink)
    places = range(0, len(names), math.ceil(len(names) / 40))
    labels = [style.shorten(names[place]) for place in places]
    axes.set_xticks(places, labels)
    for label in axes.get_xticklabels() if max(map(len, labels)) > 2 else ():
        label.set(rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(places, labels)
    axes.set(xlabel="predicted", ylabel="true")
    axes.set_title(title)
    return figure


@style.styled
def confusion_grid(matrices: Sequence[Ints], names: Sequence[str], titles: Sequence[str]) -> Figure:
    """Small confusion matrices side by side, one per metacommunity, in its colour."""
    columns = min(len(matrices), 4)
    figure, all_axes = style.panels(len(matrices), columns, 9.6 / columns + 0.25)
    colours = style.community_colours(len(matrices))
    for axes, matrix, title, colour in zip(all_axes, matrices, titles, colours, strict=True):
        _shade(axes, matrix, colour)
        axes.set_title(title, fontsize=8.5)
        axes.set(xticks=[], yticks=[])
    if len(names) <= MOST_NUMBERED:
        for axes in all_axes[::columns]:
            labels = [style.shorten(name, 14) for name in names]
            axes.set_yticks(range(len(names)), labels, fontsize=6.5)
    return figure


def _shade(axes: Axes, matrix: Ints, colour: str) -> Floats:
    """Draw the share of each class in its row, which is returned."""
    total = matrix.sum(axis=1, keepdims=True)
    share = np.divide(matrix, total, out=np.zeros(matrix.shape), where=total > 0)
    fade = LinearSegmentedColormap.from_list("fade", [to_rgba(colour, a) for a in (0.0, 1.0)])
    axes.imshow(share, cmap=fade, vmin=0, vmax=1, interpolation="nearest")
    axes.spines[:].set_visible(True)
    axes.tick_params(length=0)
    return share
