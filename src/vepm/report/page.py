"""One self-contained page per run."""

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from vepm.files import refuse_special, write_text
from vepm.report import figures, style, summary
from vepm.report.communities import bucket_order, community_rows, induced
from vepm.report.payload import build_payload, embed_json, take_excerpt
from vepm.report.reading import read_run
from vepm.report.run import Run

HERE = Path(__file__).parent
SCRIPTS = ("dom", "theme", "data", "graph", "panel", "table", "predictions", "controls")
LARGEST_PICTURED_GRAPH = 400

Drawing = Callable[[], Figure]
"""How to draw a figure: raises an exception whose message says why, where nothing can be drawn."""


def write_report(folder: str | Path) -> Path:
    """Write ``figures/`` and ``report.html`` into a run folder; gives the path of the page.

    It needs no network and no other file: script, style, data and figures are inside.
    """
    run = read_run(folder)
    place = run.folder / "figures"
    refuse_special(place)
    # Many small steps: threads would spend their time waiting for one another.
    with threadpool_limits(1):
        drawings = {name: _picture(place, name, draw) for name, draw in plan_drawings(run).items()}
        page = _render(run, drawings)
    path = run.folder / "report.html"
    write_text(path, page)
    return path


def _picture(folder: Path, name: str, draw: Drawing) -> dict[str, str]:
    """The picture as ``svg``, or the ``reason`` why there is none."""
    try:
        svg = style.draw_svg(draw(), name)
    except Exception as error:  # One failed picture must not cost the whole page.
        return {"reason": str(error) or type(error).__name__}
    style.write_svg(folder / f"{name}.svg", svg)
    return {"svg": own_markup(style.inline_svg(svg, name))}


def _render(run: Run, drawings: dict[str, dict[str, str]]) -> str:
    excerpt, communities, parts = take_excerpt(run), community_rows(run), summary.part_rows(run)
    found = "communities" if run.prediction is None else f"{run.task} classification"
    data = build_payload(run, excerpt) | {"nicknames": [row["nickname"] for row in communities]}
    return fill(
        "report.html",
        SCRIPTS,
        data,
        title=run.title,
        eyebrow=f"VEPM {found}",
        lede=summary.size_line(run),
        run=run,
        conclusion=summary.conclusion(run),
        headline=summary.headline(run),
        communities=communities,
        alone=int((~run.member.any(axis=1)).sum()),
        parts=parts,
        verdict=summary.part_verdict(run, parts),
        confused=summary.most_confused(run),
        settings=summary.settings_groups(run),
        provenance=summary.provenance(run),
        drawings=drawings,
        excerpt=excerpt,
        places={int(node): place for place, node in enumerate(excerpt.nodes)},
    )


def fill(template: str, scripts: tuple[str, ...], data: dict[str, Any], **values: Any) -> str:
    """A page from a template: style, script and data are put inside, text is escaped."""
    own = "\n".join(_asset(f"{name}.js") for name in scripts)
    library = _asset("cytoscape.min.js") if "graph" in scripts else ""
    script = f'{library}\n(() => {{\n"use strict";\n{own}\n}})();\n'
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        style=own_markup(_asset("report.css")),
        script=own_markup(script),
        # The page's own policy admits this script and no other.
        script_hash="sha256-" + base64.b64encode(digest).decode("ascii"),
        data=own_markup(embed_json(data)),
        **values,
    )


def own_markup(text: str) -> Markup:
    """Text of our own making, which is not escaped."""
    return Markup(text)  # noqa: S704 # nosec B704


def _asset(name: str) -> str:
    return (HERE / "assets" / name).read_text(encoding="utf-8")


def plan_drawings(run: Run) -> dict[str, Drawing]:
    """Every figure for which the run has data."""
    found: dict[str, Drawing] = {}
    if len(run.history["epoch"]):
        epoch = summary.headline(run)["best_epoch"]
        found["learning_curves"] = lambda: figures.learning_curves(run.history, epoch)
    found["adjacency"] = lambda: _adjacency(run)
    found["tsne_memberships"] = lambda: _memberships_map(run)
    if (embeddings := run.community_embeddings) is not None:
        title = "Community embeddings"
        found["tsne_communities"] = lambda: figures.community_map(
            embeddings, run.community_names, title
        )
    matrix, tested = summary.test_confusion(run), run.labelled("test")
    if matrix is not None:
        words = f"{tested.sum():,} test {run.items}"
        found["confusion"] = lambda: figures.confusion_matrix(matrix, run.class_names, words)
    if tested.any() and run.prediction is not None and run.probabilities is not None:
        right = np.asarray(run.prediction == run.labels)[tested]
        found["reliability"] = lambda: figures.reliability(run.confidence[tested], right)
    return found


def _adjacency(run: Run) -> Figure:
    """The whole graph, or the largest of several that a picture can hold."""
    nodes = np.arange(run.num_nodes)
    if run.batch is not None:
        sizes = np.bincount(run.batch)
        fits = sizes <= LARGEST_PICTURED_GRAPH
        chosen = np.where(fits, sizes, 0).argmax() if fits.any() else sizes.argmin()
        nodes = np.flatnonzero(run.batch == chosen)
    order, bucket = bucket_order(run.interaction[nodes])
    inside, edges = induced(run.edge_index, nodes, run.num_nodes)
    return figures.adjacency(edges, run.edge_weight[inside], order, bucket)


def _memberships_map(run: Run) -> Figure:
    """Nodes by label, or by main community where there are no labels."""
    labels = run.labels if run.batch is None or run.labels is None else run.labels[run.batch]
    if labels is not None and (labels >= 0).any():
        by = "label" if run.batch is None else "label of the graph"
        category, names = labels, list(run.class_names)
        colours = style.class_colours(len(names))
    else:
        by, category, names = "main community", run.interaction.argmax(axis=1), run.community_names
        colours = style.community_colours(len(names))
    title = f"Memberships Z, by {by}"
    return figures.embedding_map(run.memberships, category, names, colours, title)
