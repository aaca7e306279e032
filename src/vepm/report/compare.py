"""One page that sets runs side by side."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from scipy.stats import binomtest

from vepm.errors import InputError
from vepm.files import write_text
from vepm.report import figures, summary
from vepm.report.communities import Bools, Ints
from vepm.report.figures.style import community_colours
from vepm.report.page import fill
from vepm.report.run import Run, read_run

SCRIPTS = ("dom.js", "theme.js", "table.js", "compare.js")
MOST_ROWS = 5000


def write_comparison(folders: Sequence[str | Path], output: str | Path) -> Path:
    """Write one page that compares runs: settings, curves, accuracies and disagreements.

    Args:
        folders: At least two run folders, see :func:`vepm.report.read_run`.
        output: The page to write.

    Returns:
        The path of the page.

    Raises:
        InputError: A folder is not a whole run, or there are fewer than two.
    """
    if len(folders) < 2:
        raise InputError("a comparison needs at least two run folders")
    runs = [read_run(folder) for folder in folders]
    path = Path(output)
    write_text(path, _compose(runs, _names(runs)))
    return path


def _names(runs: list[Run]) -> list[str]:
    """The folders by name, or by path where names repeat."""
    short = [run.folder.resolve().name for run in runs]
    return short if len(set(short)) == len(short) else [str(run.folder) for run in runs]


def _compose(runs: list[Run], names: list[str]) -> str:
    colours = community_colours(len(runs))
    histories = [run.history for run in runs]
    curves = figures.draw_svg(figures.compared_curves(histories, names, colours), "curves")
    shared = _shared(runs)
    return fill(
        "compare.html",
        SCRIPTS,
        {} if isinstance(shared, str) else _disagreements(shared, names),
        title=" · ".join(dict.fromkeys(run.title for run in runs)),
        eyebrow="VEPM comparison",
        lede=f"{len(runs)} runs: {', '.join(names)}",
        conclusion=[shared] if isinstance(shared, str) else _conclusion(shared, names),
        runs=[
            {"name": name, "colour": colour, "cells": _cells(run)}
            for run, name, colour in zip(runs, names, colours, strict=True)
        ],
        settings=_differences(runs),
        curves=Markup(figures.inline_svg(curves, "curves")),  # noqa: S704 # nosec B704
        agreement=[] if isinstance(shared, str) else _agreement(shared, names),
        reason=shared if isinstance(shared, str) else "",
    )


def _cells(run: Run) -> list[str]:
    accuracy = summary.number_in(run.metrics, "test_accuracy")
    interval = summary.test_interval(run)
    shown = [
        run.title,
        str(run.metrics.get("seed", "–")),
        _percent(accuracy),
        "–" if interval is None else f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f} %",
    ]
    shown += [_percent(summary.number_in(run.metrics, key)) for key in ("val_accuracy", "ece")]
    seconds = summary.number_in(run.metrics, "seconds")
    return [*shown, "–" if seconds is None else f"{seconds:,.1f}"]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _differences(runs: list[Run]) -> list[tuple[str, list[str]]]:
    """Settings that are not the same in all runs, with the value of each."""
    flat = [
        {
            (section, key): value
            for section, rows in summary.settings_groups(run)
            for key, value in rows
        }
        for run in runs
    ]
    every = dict.fromkeys(name for settings in flat for name in settings)
    found = [(".".join(name), [settings.get(name, "–") for settings in flat]) for name in every]
    return [(name, values) for name, values in found if len(set(values)) > 1]


class _Shared(NamedTuple):
    """Predictions of several runs for the items that all of them were tested on."""

    runs: list[Run]
    items: Ints
    guesses: Ints
    """The class that each run predicts for each item [runs, items]."""
    labels: Ints

    @property
    def right(self) -> Bools:
        """Which predictions are right [runs, items]."""
        found: Bools = self.guesses == self.labels
        return found


def _shared(runs: list[Run]) -> _Shared | str:
    """What can be compared item by item, or why nothing can."""
    predictions = [run.prediction for run in runs if run.prediction is not None]
    if len(predictions) < len(runs):
        return "Not every run has predictions."
    same = {
        (run.title, run.task, len(prediction), run.class_names)
        for run, prediction in zip(runs, predictions, strict=True)
    }
    if len(same) > 1:
        return "The runs are of different data, so their predictions cannot be compared."
    tested = np.ones(len(predictions[0]), dtype=bool)
    for run in runs:
        tested &= run.masks.get("test", np.zeros_like(tested))
        tested &= np.asarray(run.labels is not None and run.labels >= 0)
    labels = runs[0].labels
    if labels is None or not tested.any():
        return f"The runs have no test {runs[0].items} in common."
    items = np.flatnonzero(tested)
    return _Shared(runs, items, np.stack(predictions)[:, items], labels[items])


def _conclusion(shared: _Shared, names: list[str]) -> list[str]:
    """Which of the two best runs is better, and whether that may be chance."""
    right, items = shared.right, shared.runs[0].items
    best, second = np.argsort(-right.mean(axis=1), kind="stable")[:2]
    won = int((right[best] & ~right[second]).sum())
    lost = int((right[second] & ~right[best]).sum())
    chance = binomtest(won, won + lost).pvalue if won + lost else 1.0
    high, low = (100 * float(right[run].mean()) for run in (best, second))
    more = f"more than chance would (p = {chance:.2g})"
    verdict = "no more than chance would" if chance > 0.05 else more
    return [
        f"Of {len(shared.items):,} test {items}, {names[best]} gets {high:.1f} % right and "
        f"{names[second]} {low:.1f} %.",
        f"They differ by {high - low:.1f} points, {verdict} (sign test on the {won + lost} {items} "
        "that only one of them gets right).",
    ]


def _agreement(shared: _Shared, names: list[str]) -> list[str]:
    pairs = combinations(zip(names, shared.guesses, strict=True), 2)
    return [
        f"{one} and {other} agree on {100 * (guess == another).mean():.1f} %."
        for (one, guess), (other, another) in pairs
    ]


def _disagreements(shared: _Shared, names: list[str]) -> dict[str, Any]:
    """The test items on which runs differ: what each said, and how surely."""
    differ = np.flatnonzero((shared.guesses != shared.guesses[0]).any(axis=0))[:MOST_ROWS]
    first = shared.runs[0]
    item_names = first.node_names if first.batch is None else first.graph_names
    rows = [
        [
            item_names[shared.items[place]],
            first.class_names[shared.labels[place]],
            *(
                _said(run, guess[place], shared.items[place])
                for run, guess in zip(shared.runs, shared.guesses, strict=True)
            ),
        ]
        for place in differ
    ]
    return {"columns": [first.task, "label", *names], "rows": rows}


def _said(run: Run, guess: int, item: int) -> str:
    sure = "" if run.probabilities is None else f" ({100 * run.confidence[item]:.0f} %)"
    return f"{run.class_names[guess]}{sure}"
