"""Figures of a run, each drawn from plain arrays and unknown to matplotlib's global state."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.metrics import ConfusionMatrixDisplay
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from vepm.report import style
from vepm.report.run import Floats, Ints

History = Mapping[str, NDArray[Any]]
Point = tuple[str, str, float, float, float]  # panel and curve, place, mean and its error

CURVES = {
    "Loss (minimised)": {"loss": ""},
    "Task: log-likelihood of labels": {"task": ""},
    "Edges: log-likelihood of edges": {"edges": ""},
    "KL: posterior from prior": {"kl": ""},
    "Disagreement of passes": {"disagreement": ""},
    "Accuracy": {"train_accuracy": "train", "val_accuracy": "validation"},
}
"""Panels of the learning curves: their columns of the history, and what a legend calls them."""
LINES = (style.ACCENT, style.COMMUNITY_COLOURS[3])
DASHED = (0, (3, 3))
FEW = 10  # predictions of a bin that is drawn pale: its accuracy says little
MOST_DOTS = 200_000
MOST_NUMBERED = 12  # classes of a confusion matrix whose counts are written into it
WHOLE = "#5B6B7F"
MOST_NAMED = 20  # entries of a legend
MOST_POINTS = 1500
DIGITS = 6  # decimals, relative to the largest entry, to which rows must differ to be distinct


@style.styled
def learning_curves(history: History, best_epoch: int | None = None) -> Figure:
    """Every term of the ELBO and the accuracies over training, the kept epoch marked."""
    known = [
        (title, {name: label for name, label in lines.items() if _recorded(history, name)})
        for title, lines in CURVES.items()
    ]
    drawn = [(title, lines) for title, lines in known if lines]
    figure, every = style.panels(max(len(drawn), 1), 3, 2.4, 0.2)
    for axes, (title, lines) in zip(every, drawn, strict=False):
        _panel(axes, history, lines, best_epoch)
        axes.set_title(title)
        if title == "Accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1))
            axes.legend(loc="best")
    return figure


def _recorded(history: History, name: str) -> bool:
    return name in history and bool(np.isfinite(history[name]).any())


def _panel(axes: Axes, history: History, lines: dict[str, str], best_epoch: int | None) -> None:
    """Columns over the phases in which they were recorded, one phase after the other."""
    recorded = np.isfinite(np.stack([history[name] for name in lines])).any(axis=0)
    phases = list(dict.fromkeys(history["phase"][recorded].tolist()))
    rows = np.flatnonzero(np.isin(history["phase"], phases))
    steps, phase = np.arange(len(rows)), history["phase"][rows]
    for (name, label), colour in zip(lines.items(), LINES, strict=False):
        for each in phases:
            # Some terms are computed in some epochs only; the line joins those.
            known = (phase == each) & np.isfinite(history[name][rows])
            (line,) = axes.plot(steps[known], history[name][rows][known], color=colour)
            line.set_label(label if each == phases[-1] else "")
            line.set_marker("o" if known.sum() == 1 else "")
    for start in np.flatnonzero(phase[1:] != phase[:-1]):
        axes.axvline(start + 0.5, color=style.MUTED, linewidth=0.8, linestyle=DASHED)
    kept = (phase == history["phase"][-1]) & (history["epoch"][rows] == best_epoch)
    for step in steps[kept][-1:]:
        axes.axvline(step, color=style.WARNING, linewidth=1.0)
    axes.set_xlim(-0.5, max(len(rows) - 0.5, 0.5))
    axes.locator_params(axis="x", nbins=5, integer=True, min_n_ticks=1)
    axes.locator_params(axis="y", nbins=5)
    axes.set_xlabel(", then ".join(phases) + " (epochs)")
    axes.grid(axis="y")


@style.styled
def compared_curves(
    histories: Sequence[History], names: Sequence[str], colours: Sequence[str]
) -> Figure:
    """Loss and validation accuracy of several runs over the epochs of their last phase."""
    figure, every = style.panels(2, 2, 3.0)
    titles = {"loss": "Loss (minimised)", "val_accuracy": "Validation accuracy"}
    for axes, (column, title) in zip(every, titles.items(), strict=True):
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
def error_bars(points: Sequence[Point], xlabel: str, ylabel: str) -> Figure:
    """Curves in panels; a curve has the same colour in every panel."""
    titles = list(dict.fromkeys(title for title, *_ in points))
    names = list(dict.fromkeys(name for _, name, *_ in points))
    figure, every = style.panels(len(titles), len(titles), 3.6)
    for axes, title in zip(every, titles, strict=True):
        for name, colour in zip(names, style.class_colours(len(names)), strict=True):
            own = [point for point in points if point[:2] == (title, name)]
            if own:
                _, _, places, means, errors = zip(*own, strict=True)
                axes.errorbar(places, means, errors, color=colour, marker="o", label=name)
        axes.set_title(title)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.grid(axis="y")
        axes.legend(loc="lower right")
    return figure


@style.styled
def reliability(confidence: Floats, correct: NDArray[np.bool_], bins: int = 15) -> Figure:
    """Accuracy against the confidence [n] of predictions, in equal bins, and their number."""
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    size = np.bincount(place, minlength=bins)
    accuracy = np.bincount(place, correct, bins) / np.maximum(size, 1)
    figure = style.new_figure(4.6, 4.4)
    axes, below = figure.subplots(2, 1, height_ratios=[4, 1], sharex=True)
    middle, width = (np.arange(bins) + 0.5) / bins, 0.9 / bins
    colours = [to_rgba(style.ACCENT, 0.25 if count < FEW else 0.85) for count in size]
    axes.bar(middle, accuracy, width, color=colours)
    axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=1, linestyle=DASHED)
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    axes.set_title("Accuracy by confidence")
    below.bar(middle, size, width, color=style.MUTED, alpha=0.6)
    below.set(xlabel="confidence", ylabel="count")
    return figure


def bucket_order(interaction: Floats) -> tuple[Ints, Ints]:
    """Nodes by main metacommunity, strongest first; and the main metacommunity of each node."""
    bucket = interaction.argmax(axis=1)
    return np.lexsort((-interaction.max(axis=1), bucket)), bucket


@style.styled
def adjacency(
    edge_index: Ints,
    edge_weight: Floats,
    order: Ints,
    bucket: Ints,
    names: Sequence[str] | None = None,
) -> Figure:
    """A and each part of it as panels, nodes in the given order, their buckets [N] ruled off.

    A dot is an edge, as dark as its share. Of more than 200,000 edges a sample is drawn.
    """
    count, total = edge_weight.shape[1], edge_index.shape[1]
    names = names or [f"Community {k}" for k in range(count)]
    kept = style.sample(total, MOST_DOTS, seed=0)
    row, column = np.argsort(order)[edge_index[:, kept]]
    columns = min(count + 1, 3 if count < 9 else 5)
    figure, every = style.panels(count + 1, columns, 9.6 / columns, 0.1)
    size = float(np.clip((72 * 8.6 / columns / max(len(order), 1)) ** 2, 0.7, 60))
    # There are two dots to an edge.
    drawn = "all" if len(kept) == total else f"{len(kept) / total:.0%} of"
    titles = [f"A: {drawn} {total // 2:,} edges", *names]
    shares = [np.ones(len(row)), *edge_weight[kept].T]
    colours = [WHOLE, *style.community_colours(count)]
    blocks, first, length = np.unique(bucket[order], return_index=True, return_counts=True)
    wide = length > len(order) / 30
    ticks, labels = (first + (length - 1) / 2)[wide], [str(k) for k in blocks[wide]]
    for axes, title, share, colour in zip(every, titles, shares, colours, strict=True):
        seen = share > 0.02
        shades = to_rgba_array([colour] * seen.sum(), np.clip(share[seen], 0, 1))
        dots = axes.scatter(column[seen], row[seen], s=size, c=shades, marker="s", linewidths=0)
        dots.set_rasterized(True)
        axes.set_title(title)
        axes.set(xlim=(-0.5, len(order) - 0.5), ylim=(len(order) - 0.5, -0.5), aspect="equal")
        axes.spines[:].set_visible(True)
        for boundary in first[1:] - 0.5:
            axes.axhline(boundary, color=style.MUTED, linewidth=0.4, alpha=0.7)
            axes.axvline(boundary, color=style.MUTED, linewidth=0.4, alpha=0.7)
        axes.set_xticks(ticks, labels)
        axes.set_yticks(ticks, labels)
        axes.tick_params(length=0, labelsize=7.0, pad=2)
    return figure


@style.styled
def confusion_matrix(matrix: Ints, names: Sequence[str], title: str = "") -> Figure:
    """One confusion matrix [true, predicted], shaded by count."""
    side = min(2.8 + 0.26 * len(names), 9.0)
    figure = style.new_figure(side + 0.4, side)
    axes = figure.subplots()
    _shade(axes, matrix, style.ACCENT, names, include_values=len(names) <= MOST_NUMBERED)
    axes.tick_params(axis="x", rotation=40 if max(map(len, names)) > 2 else 0)
    axes.set(xlabel="predicted", ylabel="true")
    axes.set_title(title)
    return figure


@style.styled
def confusion_grid(matrices: Sequence[Ints], names: Sequence[str], titles: Sequence[str]) -> Figure:
    """Small confusion matrices side by side, one per metacommunity, in its colour."""
    columns = min(len(matrices), 4)
    figure, every = style.panels(len(matrices), columns, 9.6 / columns + 0.25)
    colours = style.community_colours(len(matrices))
    for axes, matrix, title, colour in zip(every, matrices, titles, colours, strict=True):
        _shade(axes, matrix, colour, names, include_values=False)
        axes.set_title(title, fontsize=8.5)
        axes.set(xlabel="", ylabel="")
    return figure


def _shade(
    axes: Axes, matrix: Ints, colour: str, names: Sequence[str], *, include_values: bool
) -> None:
    fade = LinearSegmentedColormap.from_list("fade", [to_rgba(colour, a) for a in (0.0, 0.8)])
    labels = [style.shorten(name) for name in names]
    display = ConfusionMatrixDisplay(matrix, display_labels=labels)
    text = {"color": style.INK} if include_values else None
    display.plot(ax=axes, cmap=fade, colorbar=False, include_values=include_values, text_kw=text)
    axes.spines[:].set_visible(True)
    axes.tick_params(length=0, labelsize=min(8.0, 320 / len(names)))


def tsne(values: Floats) -> tuple[Floats, Ints]:
    """Positions [n, 2] of points [N, D] by t-SNE, equal ones shared, and the rows of each [n]."""
    rows = style.sample(len(values), MOST_POINTS, seed=0)
    kept = np.asarray(values[rows], dtype=np.float64)
    # TSNE divides by the spread of its input and squares distances in single precision. Equal rows
    # and very large or very small entries make that NaN, on which its tree crashes the process.
    scale = float(np.abs(kept).max(initial=0.0)) or 1.0
    distinct, place = np.unique(np.round(kept / scale, DIGITS), axis=0, return_inverse=True)
    if len(distinct) < 4:
        raise ValueError(f"t-SNE needs 4 distinct points, not {len(distinct)}")
    distinct = distinct - distinct.mean(axis=0)
    reducer = TSNE(
        perplexity=min(30.0, (len(distinct) - 1) / 3),
        init="random" if distinct.shape[1] < 2 else "pca",
        random_state=0,
        max_iter=750,
    )
    # Its threads wait on one another: one thread is several times faster on a busy machine.
    with threadpool_limits(1):
        found = reducer.fit_transform((distinct / np.abs(distinct).max()).astype(np.float32))
    return np.asarray(found, dtype=np.float64)[place.ravel()], rows


@style.styled
def embedding_map(
    values: Floats, category: Ints, names: Sequence[str], colours: Sequence[str], title: str
) -> Figure:
    """The t-SNE of values [N, D], coloured by category; -1 is drawn in grey."""
    points, rows = tsne(values)
    category = category[rows]
    figure = style.new_figure(5.6, 3.9)
    axes = figure.subplots()
    names, colours = [*names, "unknown"], [*colours, style.UNKNOWN]
    size = float(np.clip(9000 / max(len(points), 1), 5, 40))
    present = [c for c in (*range(len(names) - 1), -1) if (category == c).any()]
    for c in present:
        x, y = points[category == c].T
        dots = axes.scatter(x, y, s=size, color=colours[c], alpha=0.8, linewidths=0)
        dots.set(rasterized=True, label=style.shorten(names[c]))
    axes.set_title(title)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_axis_off()
    named = axes.get_legend_handles_labels()[0][:MOST_NAMED]
    more = f"and {len(present) - MOST_NAMED} more" if len(present) > MOST_NAMED else None
    axes.legend(handles=named, title=more, markerscale=2, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def community_map(community_embeddings: Floats, names: Sequence[str], title: str) -> Figure:
    """The t-SNE of the embeddings of nodes in metacommunities [N, K, D], one dot for each."""
    count, communities, width = community_embeddings.shape
    # All communities of some nodes.
    rows = style.sample(count, max(MOST_POINTS // communities, 1), seed=0)
    values, community = community_embeddings[rows].reshape(-1, width), np.arange(communities)
    colours = style.community_colours(len(names))
    return embedding_map(values, np.tile(community, len(rows)), names, colours, title)
