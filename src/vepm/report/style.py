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

from vepm.files import read_toml, write_text
from vepm.report.run import Ints

ASSETS = Path(__file__).parent / "assets"
COMMUNITY_COLOURS, CLASS_COLOURS = read_toml(ASSETS / "colours.toml").values()
UNKNOWN = "#9AA3AD"
INK = "#1F2A37"
MUTED = "#8A94A1"
ACCENT = "#0B7A75"
WARNING = "#C2410C"
RASTER_DPI = 125


def community_colours(count: int) -> list[str]:
    """One colour per community."""
    return list(islice(cycle(COMMUNITY_COLOURS), count))


def class_colours(count: int) -> list[str]:
    """One colour per class, none of which is a community's."""
    return list(islice(cycle(CLASS_COLOURS), count))


@contextmanager
def look(hashsalt: str | None = None) -> Iterator[None]:
    """Draw or save with the shared look."""
    with (
        mpl.rc_context({"svg.hashsalt": hashsalt}, ASSETS / "figures.mplstyle"),
        warnings.catch_warnings(),
    ):
        # Where the font lacks a script, the viewer of the SVG has another.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


styled = look()  # give a drawing function the shared look


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that belongs to no window."""
    return Figure(figsize=(width, height), layout="constrained")


def panels(count: int, columns: int, height: float, extra: float = 0) -> tuple[Figure, list[Axes]]:
    """A figure as wide as a page with ``count`` axes, in rows of at most ``columns``."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = new_figure(9.6, height * rows + extra)
    every: list[Axes] = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in every[count:]:
        axes.remove()
    return figure, every[:count]


def draw_svg(figure: Figure, name: str, dpi: int = RASTER_DPI) -> str:
    """The figure as an SVG document without background; the same figure gives the same text."""
    buffer = io.StringIO()
    with look(hashsalt=name):
        figure.savefig(buffer, format="svg", dpi=dpi, transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def write_svg(path: Path, document: str) -> None:
    """Write an SVG document on a white background."""
    write_text(path, document.replace("<svg ", '<svg style="background: white" ', 1))


def inline_svg(document: str, name: str) -> str:
    """One of our SVG documents as an element of a page, in the page's text colour.

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
