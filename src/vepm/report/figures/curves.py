"""How training went, and whether predictions know how sure they may be."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from numpy.typing import NDArray

from vepm.report.figures.style import (
    ACCENT,
    COMMUNITY_COLOURS,
    MUTED,
    WARNING,
    new_figure,
    panels,
    shorten,
    styled,
)
from vepm.report.run import Floats

History = Mapping[str, NDArray[Any]]

TERMS = {
    "loss": "Loss (minimised)",
    "task": "Task: log-likelihood of labels",
    "edges": "Edges: log-likelihood of edges",
    "kl": "KL: posterior from prior",
    "disagreement": "Disagreement of passes",
}
FEW = 10
"""Bins of fewer predictions than this are drawn pale: their accuracy says little."""
ACCURACIES = {
    "train_accuracy": ("train", COMMUNITY_COLOURS[0]),
    "val_accuracy": ("validation", COMMUNITY_COLOURS[3]),
}


@styled
def learning_curves(history: History, best_epoch: int | None = None) -> Figure:
    """Every term of the ELBO and the accuracies over training.

    Args:
        history: Columns ``phase`` (``pretrain`` or ``finetune``), ``epoch`` and any of
            ``loss``, ``task``, ``edges``, ``kl``, ``train_accuracy``, ``val_accuracy``, with
            NaN where not applicable.
        best_epoch: Epoch of the last phase whose parameters were kept.
    """
    terms = [name for name in TERMS if _recorded(history, name)]
    accuracies = [name for name in ACCURACIES if _recorded(history, name)]
    figure, all_axes = panels(max(len(terms) + bool(accuracies), 1), 3, 2.4, 0.2)
    for axes, name in zip(all_axes, terms, strict=False):
        _panel(axes, history, [(name, "", ACCENT)], best_epoch)
        axes.set_title(TERMS[name])
    if accuracies:
        percent = {**history, **{name: 100 * history[name] for name in accuracies}}
        lines = [(name, *ACCURACIES[name]) for name in accuracies]
        _panel(all_axes[-1], percent, lines, best_epoch)
        all_axes[-1].set_title("Accuracy (%)")
        all_axes[-1].legend(loc="best")
    return figure


@styled
def compared_curves(
    histories: Sequence[History], names: Sequence[str], colours: Sequence[str]
) -> Figure:
    """Loss and validation accuracy of several runs over the epochs of their last phase."""
    figure = new_figure(9.6, 3.0)
    titles = {"loss": TERMS["loss"], "val_accuracy": "Validation accuracy"}
    for axes, (column, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        for history, name, colour in zip(histories, names, colours, strict=True):
            if not _recorded(history, column):
                continue
            known = (history["phase"] == history["phase"][-1]) & np.isfinite(history[column])
            epochs, values = history["epoch"][known], history[column][known]
            axes.plot(epochs, values, color=colour, label=shorten(name))
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.grid(axis="y")
        if axes.lines:
            axes.legend(loc="best")
    return figure


@styled
def reliability(confidence: Floats, correct: NDArray[np.bool_], bins: int = 15) -> Figure:
    """Accuracy against confidence, with the expected calibration error.

    Args:
        confidence: Probability of the predicted class [n].
        correct: Whether the prediction was right [n].
        bins: Number of equal bins of confidence.
    """
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    size = np.bincount(place, minlength=bins)
    mean = np.bincount(place, confidence, bins) / np.maximum(size, 1)
    accuracy = np.bincount(place, correct, bins) / np.maximum(size, 1)
    gap = mean - accuracy
    error = float((np.abs(gap) * size).sum() / max(len(place), 1))
    figure = new_figure(4.6, 4.4)
    axes, below = figure.subplots(2, 1, height_ratios=[4, 1], sharex=True)
    width = 1 / bins
    middle = (np.arange(bins) + 0.5) * width
    filled, few = size > 0, size < FEW
    colours = [to_rgba(ACCENT, 0.25 if sparse else 0.85) for sparse in few[filled]]
    axes.bar(middle[filled], accuracy[filled], width * 0.9, color=colours)
    axes.bar(
        middle[~few], gap[~few], width * 0.9, bottom=accuracy[~few],
        facecolor="none", edgecolor=WARNING, linewidth=0.8, hatch="////",
    )  # fmt: skip
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_ylabel("accuracy")
    axes.set_title(f"Calibration error (ECE) {100 * error:.1f} points")
    below.bar(middle, size, width * 0.9, color=MUTED, alpha=0.6)
    below.set_ylabel("count")
    below.set_xlabel("confidence")
    return figure


def chosen_row(history: History, best_epoch: int | None) -> int | None:
    """Row of the chosen epoch in the last phase."""
    if best_epoch is None or not len(history["epoch"]):
        return None
    last = history["phase"] == history["phase"][-1]
    found = np.flatnonzero(last & (history["epoch"] == best_epoch))
    return int(found[-1]) if len(found) else None


def _recorded(history: History, name: str) -> bool:
    return name in history and bool(np.isfinite(history[name]).any())


def _panel(
    axes: Axes, history: History, lines: list[tuple[str, str, str]], best_epoch: int | None
) -> None:
    """Columns over the phases in which they were recorded, one phase after the other."""
    recorded = np.isfinite(np.stack([history[name] for name, _, _ in lines])).any(axis=0)
    phases = list(dict.fromkeys(history["phase"][recorded].tolist()))
    chosen = chosen_row(history, best_epoch)
    start = 0
    for phase in phases:
        rows = np.flatnonzero(history["phase"] == phase)
        steps = start + np.arange(len(rows))
        for name, label, colour in lines:
            shown_label = label if phase == phases[-1] and label else None
            # Some terms are computed in some epochs only; the line joins those.
            known = np.isfinite(history[name][rows])
            values = history[name][rows][known]
            marker = "o" if len(values) == 1 else ""
            axes.plot(steps[known], values, color=colour, label=shown_label, marker=marker)
        if start:
            axes.axvline(start - 0.5, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)))
        if chosen is not None and chosen in rows:
            _mark(axes, start + rows.tolist().index(chosen))
        start += len(rows)
    axes.set_xlim(-0.5, max(start - 0.5, 0.5))
    axes.locator_params(axis="x", nbins=5, integer=True, min_n_ticks=1)
    axes.locator_params(axis="y", nbins=5)
    axes.set_xlabel(", then ".join(phases) + " (epochs)")
    axes.grid(axis="y")


def _mark(axes: Axes, step: int) -> None:
    """A line and a marker at the chosen epoch."""
    axes.axvline(step, color=WARNING, linewidth=1.0)
    top = axes.get_xaxis_transform()
    axes.plot([step], [1.0], "v", color=WARNING, transform=top, clip_on=False, markersize=5)
