"""The look the figures share, and the colours of communities and classes."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vepm.files import write_text
from vepm.report.run import Ints

# Each colour lies as far as possible from those before it, in CIELAB and as people without
# green cones see it, so that no class looks like a community.
COMMUNITY_COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#B8A400", "#7A7F87"),
    *("#E1A5B4", "#875A87", "#A569D2", "#FF7869", "#FF96D2", "#F0B44B", "#C35AA5", "#007800"),
    *("#695AC3", "#B45A2D", "#F069C3", "#C3B487", "#3C6987", "#E15A78", "#C33C78", "#0096E1"),
)
"""Okabe and Ito's palette first; its black gives way to grey and its yellow is deepened, so that
both stand on light and dark paper alike."""

CLASS_COLOURS = (
    *("#C31E3C", "#F0B487", "#7887FF", "#78A53C", "#B43CA5", "#3CD2E1", "#965A00", "#96C396"),
    *("#D27869", "#875A4B", "#FF965A", "#78A5FF", "#8796C3", "#0069D2", "#1E785A", "#78875A"),
    *("#FF5A96", "#E1A5FF", "#B4784B", "#B4962D", "#5A69A5", "#9678C3", "#87870F", "#1E87E1"),
)

UNKNOWN = "#9AA3AD"
INK = "#1F2A37"
MUTED = "#8A94A1"
ACCENT = "#0B7A75"
WARNING = "#C2410C"

RASTER_DPI = 125
LOOK = Path(__file__).parent / "assets" / "figures.mplstyle"


def community_colours(count: int) -> list[str]:
    """One colour per community; they repeat after twenty-four."""
    return list(islice(cycle(COMMUNITY_COLOURS), count))


def class_colours(count: int) -> list[str]:
    """One colour per class, none of which is a community's; they repeat after twenty-four."""
    return list(islice(cycle(CLASS_COLOURS), count))


@contextmanager
def look(hashsalt: str | None = None) -> Iterator[None]:
    """Draw or save with the shared look."""
    with mpl.rc_context({"svg.hashsalt": hashsalt}, LOOK), warnings.catch_warnings():
        # Where the font lacks a script, the viewer of the SVG has another.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


styled = look()  # give a drawing function the shared look


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that belongs to no window."""
    return Figure(figsize=(width, height), layout="constrained")


def panels(count: int, columns: int, height: float, extra: float = 0) -> tuple[Figure, list[Axes]]:
    """A figure as wide as a page with so many axes, in rows of a height and at most ``columns``."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = new_figure(9.6, height * rows + extra)
    every: list[Axes] = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in every[count:]:
        axes.remove()
    return figure, every[:count]


def draw_svg(figure: Figure, name: str, dpi: int = RASTER_DPI) -> str:
    """The figure as an SVG document without paper; the same figure gives the same text."""
    buffer = io.StringIO()
    with look(hashsalt=name):
        figure.savefig(buffer, format="svg", dpi=dpi, transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def write_svg(path: Path, document: str) -> None:
    """Write an SVG document on white paper."""
    write_text(path, document.replace("<svg ", '<svg style="background: white" ', 1))


def inline_svg(document: str, name: str) -> str:
    """An SVG document of ours as an element for a page, in the page's own ink.

    Ink and grey become CSS colours, so one drawing serves light and dark; identifiers are
    prefixed with ``name``, so several drawings share a page.
    """
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for side in ("width", "height"):
        svg = re.sub(rf'(<svg[^>]*?) {side}="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in ((INK, "currentColor"), (MUTED, "var(--muted)")):
        svg = re.sub(re.escape(colour), variable, svg, flags=re.IGNORECASE)
    return svg.replace("<svg ", '<svg aria-hidden="true" ', 1)


def sample(count: int, limit: int, seed: int) -> Ints:
    """Numbers below ``count`` in order: all of them, or ``limit`` at random."""
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, limit, replace=False))


def shorten(name: str, limit: int = 24) -> str:
    """A name that fits beside an axis; a leading underscore would hide it from legends."""
    name = name if len(name) <= limit else name[: limit - 1] + "…"
    return " " + name if name.startswith("_") else name
