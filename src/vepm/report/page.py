"""One self-contained page per run, and one that sets runs side by side."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure
from scipy.stats import binomtest
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from vepm.errors import InputError
from vepm.files import refuse_special, write_text
from vepm.report import figures, style, summary
from vepm.report.communities import community_rows
from vepm.report.figures import bucket_order
from vepm.report.payload import build_payload, induced, take_excerpt
from vepm.report.reading import read_run
from vepm.report.run import Bools, Ints, Run

HERE = Path(__file__).parent
SCRIPTS = ("dom", "theme", "data", "graph", "panel", "table", "predictions", "controls")
COMPARING = ("dom", "theme", "table", "compare")
LARGEST_PICTURED_GRAPH = 400
MOST_ROWS = 5000  # of the table of disagreements

Drawing = Callable[[], Figure]
"""How to draw a figure: raises an exception whose message says why, where nothing can be drawn."""


def write_report(folder: str | Path) -> Path:
    """Write ``figures/`` and ``report.html`` into a run folder; returns the path of the page.

    It needs no network and no other file: script, style, data and figures are inside.
    """
    run = read_run(folder)
    place = run.folder / "figures"
    refuse_special(place)
    found = "communities" if run.prediction is None else f"{run.task} classification"
    # Many small steps: threads would spend their time waiting for one another.
    with threadpool_limits(1):
        drawings = {name: _picture(place, name, draw) for name, draw in plan_drawings(run).items()}
        excerpt, communities = take_excerpt(run), community_rows(run)
        data = build_payload(run, excerpt) | {"nicknames": [row["nickname"] for row in communities]}
    page = _fill(
        "report.html",
        SCRIPTS,
        data,
        title=run.title,
        eyebrow=f"VEPM {found}",
        lede=summary.size_line(run),
        run=run,
        summary=summary,
        communities=communities,
        drawings=drawings,
        excerpt=excerpt,
        places={int(node): place for place, node in enumerate(excerpt.nodes)},
    )
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
    return {"svg": style.inline_svg(svg, name)}


def _fill(template: str, scripts: tuple[str, ...], data: dict[str, Any], **values: Any) -> str:
    """A page from a template: style, script and data are put inside, text of others is escaped."""
    own = "\n".join(_asset(f"{name}.js") for name in scripts)
    library = _asset("cytoscape.min.js") if "graph" in scripts else ""
    script = f'{library}\n(() => {{\n"use strict";\n{own}\n}})();\n'
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    compact = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    environment.policies["json.dumps_kwargs"] = compact
    return environment.get_template(template).render(
        style=_asset("report.css"),
        script=script,
        # The page's own policy admits this script and no other.
        script_hash="sha256-" + base64.b64encode(digest).decode("ascii"),
        data=data,
        **values,
    )


def _asset(name: str) -> str:
    return (HERE / "assets" / name).read_text(encoding="utf-8")


def plan_drawings(run: Run) -> dict[str, Drawing]:
    """Every figure for which the run has data."""
    found: dict[str, Drawing] = {
        "adjacency": lambda: _adjacency(run),
        "tsne_memberships": lambda: _memberships_map(run),
    }
    if len(run.history["epoch"]):
        epoch = summary.headline(run)["best_epoch"]
        found["learning_curves"] = lambda: figures.learning_curves(run.history, epoch)
    if (embeddings := run.community_embeddings) is not None:
        named = run.community_names, "Community embeddings"
        found["tsne_communities"] = lambda: figures.community_map(embeddings, *named)
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
    by, category, names = "main community", run.interaction.argmax(axis=1), run.community_names
    colours = style.community_colours(len(names))
    if run.labels is not None and (run.labels >= 0).any():
        by = "label" if run.batch is None else "label of the graph"
        category = run.labels if run.batch is None else run.labels[run.batch]
        names, colours = list(run.class_names), style.class_colours(len(run.class_names))
    title = f"Memberships Z, by {by}"
    return figures.embedding_map(run.memberships, category, names, colours, title)


def write_comparison(folders: Sequence[str | Path], output: str | Path) -> Path:
    """Write a page that compares runs: settings, curves, accuracies and disagreements."""
    if len(folders) < 2:
        raise InputError("a comparison needs at least two run folders")
    runs = [read_run(folder) for folder in folders]
    names = [run.folder.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    colours = style.community_colours(len(runs))
    curves = figures.compared_curves([run.history for run in runs], names, colours)
    items, reason = _shared_items(runs)
    data: dict[str, Any] = {}
    conclusion, agreement = [reason], []
    if not reason:
        guesses = np.stack([np.asarray(run.prediction) for run in runs])[:, items]
        conclusion = _conclusion(guesses == np.asarray(runs[0].labels)[items], names, runs[0].items)
        agreement = [
            f"{one} and {other} agree on {100 * (guess == another).mean():.1f} %."
            for (one, guess), (other, another) in combinations(zip(names, guesses, strict=True), 2)
        ]
        data = _disagreements(runs, names, items[(guesses != guesses[0]).any(axis=0)])
    page = _fill(
        "compare.html",
        COMPARING,
        data,
        title=" · ".join(dict.fromkeys(run.title for run in runs)),
        eyebrow="VEPM comparison",
        lede=f"{len(runs)} runs: {', '.join(names)}",
        conclusion=conclusion,
        runs=list(zip(runs, names, colours, strict=True)),
        summary=summary,
        settings=_differences(runs),
        curves=style.inline_svg(style.draw_svg(curves, "curves"), "curves"),
        agreement=agreement,
        reason=reason,
    )
    path = Path(output)
    write_text(path, page)
    return path


def _shared_items(runs: list[Run]) -> tuple[Ints, str]:
    """The items that all runs were tested on, or why there are none."""
    items = np.zeros(0, dtype=np.int64)
    if any(run.prediction is None for run in runs):
        return items, "Not every run has predictions."
    if len({(run.title, run.task, run.num_items, run.class_names) for run in runs}) > 1:
        return items, "The runs are of different data, so their predictions cannot be compared."
    items = np.flatnonzero(np.all([run.labelled("test") for run in runs], axis=0))
    return items, "" if len(items) else f"The runs have no test {runs[0].items} in common."


def _differences(runs: list[Run]) -> list[tuple[str, list[str]]]:
    """Settings that are not the same in all runs, with the value of each."""
    groups = [summary.settings_groups(run) for run in runs]
    flat = [{f"{part}.{key}": v for part, rows in found for key, v in rows} for found in groups]
    every = dict.fromkeys(name for settings in flat for name in settings)
    found = [(name, [settings.get(name, "–") for settings in flat]) for name in every]
    return [(name, values) for name, values in found if len(set(values)) > 1]


def _conclusion(right: Bools, names: list[str], items: str) -> list[str]:
    """Which of the two best runs [runs, items] is better, and whether that may be chance."""
    best, second = np.argsort(-right.mean(axis=1), kind="stable")[:2]
    won = int((right[best] & ~right[second]).sum())
    lost = int((right[second] & ~right[best]).sum())
    chance = binomtest(won, won + lost).pvalue if won + lost else 1.0
    high, low = (100 * float(right[run].mean()) for run in (best, second))
    verdict = "no larger than chance" if chance > 0.05 else "larger than chance"
    return [
        f"Of {right.shape[1]:,} test {items}, {names[best]} gets {high:.1f} % right and "
        f"{names[second]} {low:.1f} %.",
        f"The difference of {high - low:.1f} points is {verdict} (p = {chance:.2g}, sign test on "
        f"the {won + lost} {items} that only one of them gets right).",
    ]


def _disagreements(runs: list[Run], names: list[str], items: Ints) -> dict[str, Any]:
    """A table of items: what each run said, and how surely."""
    first, shown = runs[0], items[:MOST_ROWS]
    every = first.node_names if first.batch is None else first.graph_names
    columns = [[every[item] for item in shown]]
    columns.append([first.class_names[label] for label in np.asarray(first.labels)[shown]])
    for run in runs:
        said = [run.class_names[guess] for guess in np.asarray(run.prediction)[shown]]
        if run.probabilities is not None:
            sure = (100 * run.confidence[shown]).tolist()
            said = [f"{name} ({part:.0f} %)" for name, part in zip(said, sure, strict=True)]
        columns.append(said)
    return {"columns": [first.task, "label", *names], "rows": list(zip(*columns, strict=True))}
