"""Figures of a run, each from plain arrays, so that any command can draw them.

Every function returns a :class:`matplotlib.figure.Figure` that no global state knows of;
:func:`render` makes PNG and SVG of it.
"""

from vepm.report.figures.curves import compared_curves, learning_curves, reliability
from vepm.report.figures.embeddings import community_map, embedding_map, tsne
from vepm.report.figures.matrices import adjacency, confusion_grid, confusion_matrix
from vepm.report.figures.style import draw_svg, inline_svg, render

__all__ = [
    "adjacency",
    "community_map",
    "compared_curves",
    "confusion_grid",
    "confusion_matrix",
    "draw_svg",
    "embedding_map",
    "inline_svg",
    "learning_curves",
    "reliability",
    "render",
    "tsne",
]
