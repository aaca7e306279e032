"""Where predictions go wrong, and whether they know it."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from numpy.typing import NDArray

from vepm.report.figures.style import new_figure, shorten, styled
from vepm.report.palette import ACCENT, INK, MUTED, WARNING, community_colours
from vepm.report.scores import calibration

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_NUMBERED = 12
FEW = 10
"""Bins of fewer predictions than this are drawn pale: their accuracy says little."""


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
    rows = -(-len(matrices) // columns)
    figure = new_figure(9.6, 9.6 / columns * rows + 0.25 * rows)
    all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
    colours = community_colours(len(matrices))
    for axes, matrix, title, colour in zip(all_axes, matrices, titles, colours, strict=False):
        _shade(axes, matrix, colour)
        axes.set_title(title, fontsize=8.5)
        axes.set_xticks([])
        axes.set_yticks([])
    if len(names) <= MOST_NUMBERED:
        for axes in all_axes[: len(matrices) : columns]:
            axes.set_yticks(range(len(names)), [shorten(name, 14) for name in names], fontsize=6.5)
    for axes in all_axes[len(matrices) :]:
        axes.remove()
    return figure


@styled
def reliability(confidence: Floats, correct: NDArray[np.bool_], bins: int = 15) -> Figure:
    """Accuracy against confidence, with the expected calibration error.

    Args:
        confidence: Probability of the predicted class [n].
        correct: Whether the prediction was right [n].
        bins: Number of equal bins of confidence.
    """
    result = calibration(confidence, correct, bins)
    figure = new_figure(4.6, 4.4)
    axes, below = figure.subplots(2, 1, height_ratios=[4, 1], sharex=True)
    width = 1 / bins
    middle = (result.edges[:-1] + result.edges[1:]) / 2
    filled, few = result.size > 0, result.size < FEW
    colours = [to_rgba(ACCENT, 0.25 if sparse else 0.85) for sparse in few[filled]]
    axes.bar(middle[filled], result.accuracy[filled], width * 0.9, color=colours)
    gap = result.confidence - result.accuracy
    axes.bar(
        middle[~few], gap[~few], width * 0.9, bottom=result.accuracy[~few],
        facecolor="none", edgecolor=WARNING, linewidth=0.8, hatch="////",
    )  # fmt: skip
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_ylabel("accuracy")
    axes.set_title(f"Calibration error (ECE) {100 * result.ece:.1f} points")
    below.bar(middle, result.size, width * 0.9, color=MUTED, alpha=0.6)
    below.set_ylabel("count")
    below.set_xlabel("confidence")
    return figure


def _shade(axes: Axes, matrix: Ints, colour: str) -> None:
    total = matrix.sum(axis=1, keepdims=True)
    share = np.divide(matrix, total, out=np.zeros(matrix.shape), where=total > 0)
    fade = LinearSegmentedColormap.from_list("fade", [to_rgba(colour, a) for a in (0.0, 1.0)])
    axes.imshow(share, cmap=fade, vmin=0, vmax=1, interpolation="nearest")
    for spine in axes.spines.values():
        spine.set_visible(True)
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
    axes.set_xticks(list(places), labels, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(list(places), labels)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
