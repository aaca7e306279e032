"""One page that sets runs side by side."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from scipy.stats import binomtest

from vepm.errors import InputError
from vepm.files import write_text
from vepm.report import figures, summary
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
    reason = _incomparable(runs)
    return fill(
        "compare.html",
        SCRIPTS,
        {} if reason else _disagreements(runs, names),
        title=" · ".join(dict.fromkeys(run.title for run in runs)),
        eyebrow="VEPM comparison",
        lede=f"{len(runs)} runs: {', '.join(names)}",
        conclusion=_conclusion(runs, names, reason),
        runs=[
            {"name": name, "colour": colour, "cells": _cells(run)}
            for run, name, colour in zip(runs, names, colours, strict=True)
        ],
        settings=_differences(runs),
        curves=Markup(figures.inline_svg(curves, "curves")),  # noqa: S704 # nosec B704
        agreement=[] if reason else _agreement(runs, names),
        reason=reason,
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


def _incomparable(runs: list[Run]) -> str:
    """Why predictions cannot be compared item by item; empty if they can."""
    if any(run.prediction is None for run in runs):
        return "Not every run has predictions."
    first = runs[0]
    same = {(run.title, run.task, len(_predicted(run)), run.class_names) for run in runs}
    if len(same) > 1:
        return "The runs are of different data, so their predictions cannot be compared."
    if not _tested(runs).any():
        return f"The runs have no test {first.items} in common."
    return ""


def _predicted(run: Run) -> NDArray[np.int64]:
    assert run.prediction is not None
    return run.prediction


def _tested(runs: list[Run]) -> NDArray[np.bool_]:
    """Items that every run was tested on."""
    everywhere = np.ones(len(_predicted(runs[0])), dtype=bool)
    for run in runs:
        everywhere &= run.masks.get("test", np.zeros_like(everywhere))
        everywhere &= np.asarray(run.labels is not None and run.labels >= 0)
    return everywhere


def _right(run: Run, tested: NDArray[np.bool_]) -> NDArray[np.bool_]:
    assert run.labels is not None
    right: NDArray[np.bool_] = (_predicted(run) == run.labels)[tested]
    return right


def _conclusion(runs: list[Run], names: list[str], reason: str) -> list[str]:
    """Which of the two best runs is better, and whether that may be chance."""
    if reason:
        return [reason]
    tested = _tested(runs)
    right = [_right(run, tested) for run in runs]
    best, second = sorted(range(len(runs)), key=lambda r: -right[r].mean())[:2]
    won = int((right[best] & ~right[second]).sum())
    lost = int((right[second] & ~right[best]).sum())
    chance = binomtest(won, won + lost).pvalue if won + lost else 1.0
    points = 100 * float(right[best].mean() - right[second].mean())
    verdict = (
        "no more than chance would"
        if chance > 0.05
        else f"more than chance would (p = {chance:.2g})"
    )
    return [
        f"Of {tested.sum():,} test {runs[0].items}, {names[best]} gets "
        f"{100 * right[best].mean():.1f} % right and {names[second]} "
        f"{100 * right[second].mean():.1f} %.",
        f"They differ by {points:.1f} points, {verdict} (sign test on the "
        f"{won + lost} {runs[0].items} that only one of them gets right).",
    ]


def _agreement(runs: list[Run], names: list[str]) -> list[str]:
    tested = _tested(runs)
    lines = []
    for one, other in combinations(range(len(runs)), 2):
        same = _predicted(runs[one])[tested] == _predicted(runs[other])[tested]
        lines.append(f"{names[one]} and {names[other]} agree on {100 * same.mean():.1f} %.")
    return lines


def _disagreements(runs: list[Run], names: list[str]) -> dict[str, Any]:
    """The test items on which runs differ: what each said, and how surely."""
    tested = _tested(runs)
    guesses = np.stack([_predicted(run) for run in runs])
    differ = np.flatnonzero(tested & (guesses != guesses[0]).any(axis=0))[:MOST_ROWS]
    first = runs[0]
    item_names = first.node_names if first.batch is None else first.graph_names
    assert first.labels is not None
    rows = [
        [
            item_names[item],
            first.class_names[first.labels[item]],
            *(_said(run, int(item)) for run in runs),
        ]
        for item in differ
    ]
    return {"columns": [first.task, "label", *names], "rows": rows}


def _said(run: Run, item: int) -> str:
    sure = "" if run.probabilities is None else f" ({100 * run.confidence[item]:.0f} %)"
    return f"{run.class_names[_predicted(run)[item]]}{sure}"
