"""Size, density and overlap of the communities at a glance."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vepm.report.communities import CommunityTable
from vepm.report.figures.style import new_figure, styled
from vepm.report.palette import ACCENT, MUTED, community_colours


@styled
def community_overview(table: CommunityTable) -> Figure:
    """Members, density and pairwise overlap of every metacommunity."""
    count = len(table.nodes)
    figure = new_figure(9.6, max(2.4, 0.32 * count + 1.0))
    sizes, density, overlap = figure.subplots(1, 3, width_ratios=[1.2, 1, 1.1])
    colours = community_colours(count)
    rows = np.arange(count)
    sizes.barh(rows, table.members, color=colours, alpha=0.35)
    sizes.barh(rows, table.nodes, color=colours, height=0.5)
    sizes.set_title("Nodes (solid: main community)")
    density.barh(rows, np.nan_to_num(table.density), color=colours, height=0.6)
    density.set_title("Density among members")
    for axes in (sizes, density):
        axes.set_yticks(rows, [str(k) for k in rows])
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.tick_params(axis="y", length=0)
    _draw_overlap(overlap, table)
    return figure


def _draw_overlap(axes: Axes, table: CommunityTable) -> None:
    count = len(table.nodes)
    values = table.jaccard.copy()
    np.fill_diagonal(values, 0.0)
    most = float(values.max())
    fade = LinearSegmentedColormap.from_list(
        "fade", [to_rgba(ACCENT, alpha) for alpha in (0.0, 1.0)]
    )
    axes.imshow(values, cmap=fade, vmin=0, vmax=max(most, 1e-9), interpolation="nearest")
    axes.set_title(f"Overlap (darkest: {most:.2f})")
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(count - 0.5, -0.5)
    ticks = range(count)
    labels = [str(k) for k in ticks]
    axes.set_xticks(ticks, labels)
    axes.set_yticks(ticks, labels)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_color(MUTED)
        spine.set_visible(True)
