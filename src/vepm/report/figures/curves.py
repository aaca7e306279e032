"""How training went, and whether predictions know how sure they may be."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from numpy.typing import NDArray

from vepm.report.figures import style
from vepm.report.run import Floats

History = Mapping[str, NDArray[Any]]

TERMS = {
    "loss": "Loss (minimised)",
    "task": "Task: log-likelihood of labels",
    "edges": "Edges: log-likelihood of edges",
    "kl": "KL: posterior from prior",
    "disagreement": "Disagreement of passes",
}
ACCURACIES = {
    "train_accuracy": ("train", style.COMMUNITY_COLOURS[0]),
    "val_accuracy": ("validation", style.COMMUNITY_COLOURS[3]),
}
DASHED = (0, (3, 3))
FEW = 10
"""Bins of fewer predictions than this are drawn pale: their accuracy says little."""


@style.styled
def learning_curves(history: History, best_epoch: int | None = None) -> Figure:
    """Every term of the ELBO and the accuracies over training.

    Args:
        history: Columns ``phase`` (``pretrain`` or ``finetune``), ``epoch`` and any of
            ``loss``, ``task``, ``edges``, ``kl``, ``train_accuracy``, ``val_accuracy``, with
            NaN where not applicable.
        best_epoch: Epoch of the last phase whose parameters were kept.
    """
    terms = {name: ("", style.ACCENT) for name in TERMS if _recorded(history, name)}
    accuracies = {name: ACCURACIES[name] for name in ACCURACIES if _recorded(history, name)}
    figure, all_axes = style.panels(max(len(terms) + bool(accuracies), 1), 3, 2.4, 0.2)
    for axes, name in zip(all_axes, terms, strict=False):
        _panel(axes, history, {name: terms[name]}, best_epoch)
        axes.set_title(TERMS[name])
    if accuracies:
        percent = {**history, **{name: 100 * history[name] for name in accuracies}}
        _panel(all_axes[-1], percent, accuracies, best_epoch)
        all_axes[-1].set_title("Accuracy (%)")
        all_axes[-1].legend(loc="best")
    return figure


@style.styled
def compared_curves(
    histories: Sequence[History], names: Sequence[str], colours: Sequence[str]
) -> Figure:
    """Loss and validation accuracy of several runs over the epochs of their last phase."""
    figure = style.new_figure(9.6, 3.0)
    titles = {"loss": TERMS["loss"], "val_accuracy": "Validation accuracy"}
    for axes, (column, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        for history, name, colour in zip(histories, names, colours, strict=True):
            if _recorded(history, column):
                known = (history["phase"] == history["phase"][-1]) & np.isfinite(history[column])
                epochs, values = history["epoch"][known], history[column][known]
                axes.plot(epochs, values, color=colour, label=style.shorten(name))
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.grid(axis="y")
        if axes.lines:
            axes.legend(loc="best")
    return figure


@style.styled
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
    figure = style.new_figure(4.6, 4.4)
    axes, below = figure.subplots(2, 1, height_ratios=[4, 1], sharex=True)
    middle, width = (np.arange(bins) + 0.5) / bins, 0.9 / bins
    filled, few = size > 0, size < FEW
    colours = [to_rgba(style.ACCENT, 0.25 if sparse else 0.85) for sparse in few[filled]]
    axes.bar(middle[filled], accuracy[filled], width, color=colours)
    axes.bar(
        middle[~few], gap[~few], width, bottom=accuracy[~few],
        facecolor="none", edgecolor=style.WARNING, linewidth=0.8, hatch="////",
    )  # fmt: skip
    axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=1, linestyle=DASHED)
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    axes.set_title(f"Calibration error (ECE) {100 * error:.1f} points")
    below.bar(middle, size, width, color=style.MUTED, alpha=0.6)
    below.set(xlabel="confidence", ylabel="count")
    return figure


def _recorded(history: History, name: str) -> bool:
    return name in history and bool(np.isfinite(history[name]).any())


def _panel(
    axes: Axes, history: History, lines: dict[str, tuple[str, str]], best_epoch: int | None
) -> None:
    """Columns over the phases in which they were recorded, one phase after the other."""
    recorded = np.isfinite(np.stack([history[name] for name in lines])).any(axis=0)
    phases = list(dict.fromkeys(history["phase"][recorded].tolist()))
    start = 0
    for phase in phases:
        rows = np.flatnonzero(history["phase"] == phase)
        steps = start + np.arange(len(rows))
        for name, (label, colour) in lines.items():
            # Some terms are computed in some epochs only; the line joins those.
            known = np.isfinite(history[name][rows])
            (line,) = axes.plot(steps[known], history[name][rows][known], color=colour)
            line.set_label(label if phase == phases[-1] else "")
            line.set_marker("o" if known.sum() == 1 else "")
        if start:
            axes.axvline(start - 0.5, color=style.MUTED, linewidth=0.8, linestyle=DASHED)
        if phase == history["phase"][-1]:
            for step in steps[history["epoch"][rows] == best_epoch][-1:]:
                axes.axvline(step, color=style.WARNING, linewidth=1.0)
                # In a system of coordinates of its own the mark leaves the limits as they are.
                top = axes.get_xaxis_transform()
                (mark,) = axes.plot(step, 1, "v", color=style.WARNING, transform=top, clip_on=False)
                mark.set_markersize(5)
        start += len(rows)
    axes.set_xlim(-0.5, max(start - 0.5, 0.5))
    axes.locator_params(axis="x", nbins=5, integer=True, min_n_ticks=1)
    axes.locator_params(axis="y", nbins=5)
    axes.set_xlabel(", then ".join(phases) + " (epochs)")
    axes.grid(axis="y")
