"""The adjacency matrix before and after the partition of its edges."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from vepm.report.figures.style import new_figure, styled
from vepm.report.palette import MUTED, community_colours

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_DOTS = 200_000
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
    edge_index, edge_weight = _sample(edge_index, edge_weight, seed)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    row, column = place[edge_index]
    panels = count + 1
    columns = min(panels, 3 if panels <= 9 else 5)
    rows = -(-panels // columns)
    figure = new_figure(9.6, 9.6 / columns * rows + 0.1)
    all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
    size = _dot_size(len(order), columns)
    _panel(all_axes[0], row, column, np.ones(len(row)), WHOLE, len(order), size)
    all_axes[0].set_title(_shown(edge_index.shape[1], total))
    for k, colour in enumerate(community_colours(count)):
        axes = all_axes[k + 1]
        _panel(axes, row, column, edge_weight[:, k], colour, len(order), size)
        axes.set_title(names[k])
    for axes in all_axes[:panels]:
        _rule_off(axes, order, bucket)
    for axes in all_axes[panels:]:
        axes.remove()
    return figure


def _shown(drawn: int, total: int) -> str:
    """How many of the dots, two to an edge, are drawn."""
    if drawn == total:
        return f"A: all {total // 2:,} edges"
    return f"A: {drawn / total:.0%} of {total // 2:,} edges"


def _sample(edge_index: Ints, edge_weight: Floats, seed: int) -> tuple[Ints, Floats]:
    total = edge_index.shape[1]
    if total <= MOST_DOTS:
        return edge_index, edge_weight
    kept = np.sort(np.random.default_rng(seed).choice(total, MOST_DOTS, replace=False))
    return edge_index[:, kept], edge_weight[kept]


def _dot_size(num_nodes: int, columns: int) -> float:
    cell = 72 * 8.6 / columns / max(num_nodes, 1)
    return float(np.clip(cell**2, 0.7, 60))


def _panel(
    axes: Axes, row: Ints, column: Ints, share: Floats, colour: str, num_nodes: int, size: float
) -> None:
    visible = share > 0.02
    rgba = np.empty((int(visible.sum()), 4))
    rgba[:, :3] = to_rgb(colour)
    rgba[:, 3] = np.clip(share[visible], 0, 1)
    axes.scatter(
        column[visible], row[visible], s=size, c=rgba, marker="s", linewidths=0, rasterized=True
    )
    axes.set_xlim(-0.5, num_nodes - 0.5)
    axes.set_ylim(num_nodes - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)


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
