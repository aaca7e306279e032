"""One page that sets runs side by side."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from vepm.errors import InputError
from vepm.files import write_text
from vepm.report import figures, style, summary
from vepm.report.page import fill, own_markup
from vepm.report.reading import read_run
from vepm.report.run import Bools, Ints, Run

SCRIPTS = ("dom", "theme", "table", "compare")
MOST_ROWS = 5000


def write_comparison(folders: Sequence[str | Path], output: str | Path) -> Path:
    """Write a page that compares runs: settings, curves, accuracies and disagreements."""
    if len(folders) < 2:
        raise InputError("a comparison needs at least two run folders")
    runs = [read_run(folder) for folder in folders]
    names = [run.folder.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    path = Path(output)
    write_text(path, _compose(runs, names))
    return path


def _compose(runs: list[Run], names: list[str]) -> str:
    colours = style.community_colours(len(runs))
    histories = [run.history for run in runs]
    curves = style.draw_svg(figures.compared_curves(histories, names, colours), "curves")
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
    return fill(
        "compare.html",
        SCRIPTS,
        data,
        title=" · ".join(dict.fromkeys(run.title for run in runs)),
        eyebrow="VEPM comparison",
        lede=f"{len(runs)} runs: {', '.join(names)}",
        conclusion=conclusion,
        runs=[
            {"name": name, "colour": colour, "cells": _cells(run)}
            for run, name, colour in zip(runs, names, colours, strict=True)
        ],
        settings=_differences(runs),
        curves=own_markup(style.inline_svg(curves, "curves")),
        agreement=agreement,
        reason=reason,
    )


def _shared_items(runs: list[Run]) -> tuple[Ints, str]:
    """The items that all runs were tested on, or why there are none."""
    items = np.zeros(0, dtype=np.int64)
    if any(run.prediction is None for run in runs):
        return items, "Not every run has predictions."
    if len({(run.title, run.task, run.num_items, run.class_names) for run in runs}) > 1:
        return items, "The runs are of different data, so their predictions cannot be compared."
    items = np.flatnonzero(np.all([run.labelled("test") for run in runs], axis=0))
    return items, "" if len(items) else f"The runs have no test {runs[0].items} in common."


def _cells(run: Run) -> list[str]:
    interval, seconds = summary.test_interval(run), summary.number_in(run.metrics, "seconds")
    keys = ("test_accuracy", "val_accuracy", "ece")
    numbers = [summary.number_in(run.metrics, key) for key in keys]
    test, val, ece = ("–" if value is None else f"{100 * value:.1f} %" for value in numbers)
    between = f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f} %" if interval else "–"
    time = "–" if seconds is None else f"{seconds:,.1f}"
    return [run.title, str(run.metrics.get("seed", "–")), test, between, val, ece, time]


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
