"""The three results that README and home page open with, from the files in `results/`."""

import csv
import json
from collections.abc import Collection
from statistics import fmean

from results import ROOT

MISSING = "not measured yet"
PANEL = ("VEPM", "GAT", "GCN", "MLP")
RELATIONS = ("VEPM, learned", "VEPM, even", "GAT", "GCN")
UNSEEN = ("amazon-photo", "dblp-full", "facebook-pages")
"""Graphs of the panel on which nothing was chosen, as its notes say."""
EXAMPLES = ("ACM", "IMDB", "generated 0.8", "amazon-photo", "dblp-full", "uat")
"""Graphs of the short table in the README."""
SPLIT = ("VEPM", *RELATIONS)
"""Rows of the table of the split: the default, which chooses, then a learned and an even split."""
SPOKEN = {"VEPM, learned": "VEPM", "VEPM, even": "with an even split"}
"""Rows as a sentence names them, where that is another way."""


def headlines() -> str:
    """Three lines: a panel of graphs, what the split is worth, speed beside GAT."""
    return "\n".join(f"- **{title}**: {body}" for title, body in _lines().items())


def _lines() -> dict[str, str]:
    return {
        "Accuracy of the default settings on graphs on which nothing was chosen": _panel(),
        "What the split is worth where edges are of several hidden kinds": _relations(),
        "Speed beside GAT": _speed(),
    }


def table(name: str) -> dict[tuple[str, str], dict[str, str]]:
    """Our numbers in a table by row and column, its main rule first."""
    path = ROOT / "results" / name / "table.csv"
    found: dict[tuple[str, str], dict[str, str]] = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                if line["source"] == "ours" and line["mean"]:
                    found.setdefault((line["row"], line["column"]), line)
    return found


def _panel() -> str:
    found = table("panel")
    rows = [row for row in PANEL if any(row == name for name, _ in found)]
    common = [c for c in UNSEEN if all((row, c) in found for row in rows)]
    if "VEPM" not in rows or len(rows) < 2 or not common:
        return MISSING
    means = [
        f"{SPOKEN.get(row, row)} {fmean(float(found[row, c]['mean']) for c in common):.1f}"
        for row in rows
    ]
    return f"{', '.join(means)} (per cent, mean over {', '.join(common)}; 20 labels a class)"


def _relations() -> str:
    found = table("hidden-relations")
    shown = []
    for column in dict.fromkeys(column for _, column in found):
        rows = [row for row in RELATIONS if (row, column) in found]
        if {"VEPM, learned", "VEPM, even"} <= set(rows):
            means = {SPOKEN.get(row, row): float(found[row, column]["mean"]) for row in rows}
            numbers = ", ".join(f"{row} {mean:.1f}" for row, mean in means.items())
            shown.append(f"{column}: {numbers}")
    return f"{'; '.join(shown[:2])} (per cent, 20 labels a class)" if shown else MISSING


def split_table(shown: Collection[str] = ()) -> str:
    """What a learned split is worth on all graphs, or on those shown, as a Markdown table."""
    lines = [
        "| graph | VEPM | learned split | even split | GAT | GCN | worth of the split |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("hidden-relations", "panel"):
        found = table(name)
        for column in dict.fromkeys(column for _, column in found if "ROC" not in column):
            measured = all((row, column) in found for row in SPLIT)
            if measured and (not shown or column in shown):
                means = [float(found[row, column]["mean"]) for row in SPLIT]
                cells = [f"{mean:.1f}" for mean in means]
                lines.append(f"| {column} | {' | '.join(cells)} | {means[1] - means[2]:+.1f} |")
    return "\n".join(lines)


def _speed() -> str:
    words = []
    for name, device in (("cpu", "a CPU"), ("h200", "an H200")):
        path = ROOT / "results" / "bench" / f"{name}.json"
        ratios = json.loads(path.read_text(encoding="utf-8"))["ratios"] if path.exists() else []
        for row in ratios:
            if (row["graph"], row["step"], row["against"]) == ("PubMed", "joint", "gat"):
                words.append(f"{row['time']:.2f} of GAT's time on {device}")
    return f"a joint training step on PubMed takes {' and '.join(words)}" if words else MISSING
