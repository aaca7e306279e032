"""Adjacency matrices, whole and partitioned, and confusion matrices."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba, to_rgba_array
from matplotlib.figure import Figure

from vepm.report.figures.style import (
    ACCENT,
    INK,
    MUTED,
    community_colours,
    new_figure,
    panels,
    sample,
    shorten,
    styled,
)
from vepm.report.run import Floats, Ints

MOST_DOTS = 200_000
MOST_NUMBERED = 12
WHOLE = "#5B6B7F"


@styled
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
    kept = sample(total, MOST_DOTS, seed)
    edge_index, edge_weight = edge_index[:, kept], edge_weight[kept]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    row, column = place[edge_index]
    columns = min(count + 1, 3 if count < 9 else 5)
    figure, all_axes = panels(count + 1, columns, 9.6 / columns, 0.1)
    size = _dot_size(len(order), columns)
    _panel(all_axes[0], row, column, np.ones(len(row)), WHOLE, len(order), size)
    all_axes[0].set_title(_shown(edge_index.shape[1], total))
    every = zip(all_axes[1:], edge_weight.T, community_colours(count), names, strict=True)
    for axes, share, colour, name in every:
        _panel(axes, row, column, share, colour, len(order), size)
        axes.set_title(name)
    for axes in all_axes:
        _rule_off(axes, order, bucket)
    return figure


def _shown(drawn: int, total: int) -> str:
    """How many of the dots, two to an edge, are drawn."""
    if drawn == total:
        return f"A: all {total // 2:,} edges"
    return f"A: {drawn / total:.0%} of {total // 2:,} edges"


def _dot_size(num_nodes: int, columns: int) -> float:
    cell = 72 * 8.6 / columns / max(num_nodes, 1)
    return float(np.clip(cell**2, 0.7, 60))


def _panel(
    axes: Axes, row: Ints, column: Ints, share: Floats, colour: str, num_nodes: int, size: float
) -> None:
    seen = share > 0.02
    shades = to_rgba_array([colour] * seen.sum(), np.clip(share[seen], 0, 1))
    dots = axes.scatter(column[seen], row[seen], s=size, c=shades, marker="s", linewidths=0)
    dots.set_rasterized(True)
    axes.set_xlim(-0.5, num_nodes - 0.5)
    axes.set_ylim(num_nodes - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(True)


def _rule_off(axes: Axes, order: Ints, bucket: Ints | None) -> None:
    """A line between blocks, and the number of each block beside its middle."""
    if bucket is None:
        return
    blocks, first, size = np.unique(bucket[order], return_index=True, return_counts=True)
    for boundary in first[1:] - 0.5:
        axes.axhline(boundary, color=MUTED, linewidth=0.4, alpha=0.7)
        axes.axvline(boundary, color=MUTED, linewidth=0.4, alpha=0.7)
    middle = first + (size - 1) / 2
    wide = size > len(order) / 30
    labels = [str(k) for k in blocks[wide]]
    axes.set_xticks(middle[wide], labels)
    axes.set_yticks(middle[wide], labels)
    axes.tick_params(length=0, labelsize=7.0, pad=2)


@styled
def confusion_matrix(matrix: Ints, names: Sequence[str], title: str = "") -> Figure:
    """One confusion matrix [true, predicted], shaded by row share, with counts.

    Args:
        matrix: Counts [classes, classes].
        names: Name of each class.
        title: Title of the figure.
    """
    side = min(2.8 + 0.26 * len(names), 9.0)
    figure = new_figure(side + 0.4, side)
    axes = figure.subplots()
    _shade(axes, matrix, ACCENT)
    if len(names) <= MOST_NUMBERED:
        _number(axes, matrix)
    _name_axes(axes, names)
    axes.set_title(title)
    return figure


@styled
def confusion_grid(matrices: Sequence[Ints], names: Sequence[str], titles: Sequence[str]) -> Figure:
    """Small confusion matrices side by side, one per metacommunity, in its colour."""
    columns = min(len(matrices), 4)
    figure, all_axes = panels(len(matrices), columns, 9.6 / columns + 0.25)
    colours = community_colours(len(matrices))
    for axes, matrix, title, colour in zip(all_axes, matrices, titles, colours, strict=True):
        _shade(axes, matrix, colour)
        axes.set_title(title, fontsize=8.5)
        axes.set_xticks([])
        axes.set_yticks([])
    if len(names) <= MOST_NUMBERED:
        for axes in all_axes[::columns]:
            axes.set_yticks(range(len(names)), [shorten(name, 14) for name in names], fontsize=6.5)
    return figure


def _shade(axes: Axes, matrix: Ints, colour: str) -> None:
    total = matrix.sum(axis=1, keepdims=True)
    share = np.divide(matrix, total, out=np.zeros(matrix.shape), where=total > 0)
    fade = LinearSegmentedColormap.from_list("fade", [to_rgba(colour, a) for a in (0.0, 1.0)])
    axes.imshow(share, cmap=fade, vmin=0, vmax=1, interpolation="nearest")
    axes.spines[:].set_visible(True)
    axes.tick_params(length=0)


def _number(axes: Axes, matrix: Ints) -> None:
    total = np.maximum(matrix.sum(axis=1), 1)
    for row, column in np.argwhere(matrix > 0):
        dark = matrix[row, column] / total[row] > 0.55
        axes.text(
            column, row, f"{matrix[row, column]:,}", ha="center", va="center", fontsize=8,
            color="white" if dark else INK,
        )  # fmt: skip


def _name_axes(axes: Axes, names: Sequence[str]) -> None:
    step = math.ceil(len(names) / 40)
    places = range(0, len(names), step)
    labels = [shorten(names[place]) for place in places]
    axes.set_xticks(list(places), labels)
    for label in axes.get_xticklabels() if max(map(len, labels)) > 2 else ():
        label.set(rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(list(places), labels)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
