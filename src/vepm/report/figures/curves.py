"""How training went."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from vepm.report.figures.style import new_figure, styled
from vepm.report.palette import ACCENT, COMMUNITY_COLOURS, MUTED, WARNING

History = Mapping[str, NDArray[Any]]

TERMS = {
    "loss": "Loss (minimised)",
    "task": "Task: log-likelihood of labels",
    "edges": "Edges: log-likelihood of edges",
    "kl": "KL: posterior from prior",
}
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
    panels = max(len(terms) + bool(accuracies), 1)
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = new_figure(9.6, 2.4 * rows + 0.2)
    all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(all_axes, terms, strict=False):
        axes.plot(steps(history), history[name], color=ACCENT)
        axes.set_title(TERMS[name])
    if accuracies:
        _draw_accuracies(all_axes[len(terms)], history, accuracies)
    for axes in all_axes[:panels]:
        _mark(axes, history, best_epoch)
    for axes in all_axes[panels:]:
        axes.remove()
    return figure


def steps(history: History) -> NDArray[np.int64]:
    """Running number of each row: phases follow one another on one axis."""
    return np.arange(len(history["epoch"]))


def chosen_step(history: History, best_epoch: int | None) -> int | None:
    """Row of the chosen epoch in the last phase."""
    if best_epoch is None or not len(history["epoch"]):
        return None
    last = history["phase"] == history["phase"][-1]
    found = np.flatnonzero(last & (history["epoch"] == best_epoch))
    return int(found[-1]) if len(found) else None


def _recorded(history: History, name: str) -> bool:
    return name in history and bool(np.isfinite(history[name]).any())


def _draw_accuracies(axes: Axes, history: History, accuracies: list[str]) -> None:
    for name in accuracies:
        label, colour = ACCURACIES[name]
        axes.plot(steps(history), 100 * history[name], color=colour, label=label)
    axes.set_title("Accuracy (%)")
    axes.legend(loc="best")


def _mark(axes: Axes, history: History, best_epoch: int | None) -> None:
    axes.grid(axis="y")
    phases = history["phase"]
    first, last = _extent(axes)
    axes.set_xlim(first - 0.5, max(last + 0.5, first + 1))
    axes.set_xlabel(", then ".join(dict.fromkeys(phases[first : last + 1].tolist())) + " (epochs)")
    for boundary in np.flatnonzero(phases[1:] != phases[:-1]):
        axes.axvline(boundary + 0.5, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)))
    chosen = chosen_step(history, best_epoch)
    if chosen is not None:
        axes.axvline(chosen, color=WARNING, linewidth=1.0)
        axes.plot(
            [chosen], [1.0], marker="v", color=WARNING, transform=axes.get_xaxis_transform(),
            clip_on=False, markersize=5,
        )  # fmt: skip



def _extent(axes: Axes) -> tuple[int, int]:
    """First and last step at which the panel has anything to show."""
    shown = [np.flatnonzero(np.isfinite(np.asarray(line.get_ydata()))) for line in axes.lines]
    rows = np.concatenate([*shown, [0]]) if not any(map(len, shown)) else np.concatenate(shown)
    return int(rows.min()), int(rows.max())
