"""What a page says about a run: its conclusion, its numbers and its settings."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix

from vepm.report.run import Ints, Run, listed
from vepm.report.style import community_colours

UNSURE = 0.6  # an item whose likeliest class has a lower probability is called uncertain
MOST_DRAWN_CLASSES = 1000  # classes of a confusion matrix that is drawn
MOST = 0.6  # communities that together have this part of the evidence carry most of it
TRIED = {
    "learned": "a learned split",
    "even": "an even split",
    "sage": "an even split that keeps nodes apart from their neighbours",
}
"""What the partition ``"auto"`` tries, in words."""
NEARLY_EVEN = 0.1  # edges whose shares differ by less than this, on average, are split alike


def number_in(given: Mapping[str, Any], key: str) -> float | None:
    """A finite number in a mapping read from a file; None where there is none."""
    value: Any = given.get(key)
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def headline(run: Run) -> dict[str, Any]:
    """The numbers a reader looks for first; None where a run has no such number."""
    epoch, tested = run.metrics.get("best_epoch", -1), int(run.labelled("test").sum())
    names = ("test_accuracy", "val_accuracy", "ece", "nmi")
    found: dict[str, Any] = {name: number_in(run.metrics, name) for name in names}
    accuracy, interval = found["test_accuracy"], None
    if accuracy is not None and tested:
        interval = binomtest(round(accuracy * tested), tested).proportion_ci(method="wilson")
    rivals = {
        name: number_in(scores, "test_accuracy")
        for name, scores in run.metrics.get("baselines", {}).items()
        if number_in(scores, "test_accuracy") is not None
    }
    return found | {
        "interval": interval and (float(interval.low), float(interval.high)),
        "tested": tested,
        "validated": int(run.labelled("val").sum()),
        "rule": run.metrics.get("rule"),
        "best_epoch": epoch if run.prediction is not None and epoch >= 0 else None,
        "scores": {"VEPM": accuracy} | rivals if rivals and accuracy is not None else {},
    }


def test_confusion(run: Run) -> Ints | None:
    """Test items by true and by predicted class [classes, classes], where a picture can hold it."""
    tested, classes = run.labelled("test"), range(len(run.class_names))
    if run.labels is None or run.prediction is None or len(classes) > MOST_DRAWN_CLASSES:
        return None
    if not tested.any():
        return None
    return confusion_matrix(run.labels[tested], run.prediction[tested], labels=classes)


def conclusion(run: Run) -> list[str]:
    """What the page shows, in one or two sentences."""
    found = headline(run)
    accuracy, rivals = found["test_accuracy"], dict(found["scores"])
    if accuracy is None:
        return [_groups(run)]
    first = f"{100 * accuracy:.1f} % of the test {run.items} are classified correctly"
    if rivals:
        del rivals["VEPM"]
        best = max(rivals, key=lambda name: rivals[name])
        points = 100 * (accuracy - rivals[best])
        side = "above" if points >= 0 else "below"
        which = ", the best baseline" if len(rivals) > 1 else ""
        first += f", {abs(points):.1f} points {side} {best}{which}"
    rest = [_evidence(run)]
    if run.probabilities is not None:
        # As rounded as the page shows it, so that its button counts the same.
        count = int(((100 * run.confidence).round(1) < 100 * UNSURE).sum())
        are = f"{run.items} are" if count != 1 else f"{run.task} is"
        rest.append(f"{count:,} {are} uncertain (under {100 * UNSURE:.0f} %)")
    sentences = (first, "; ".join(filter(None, rest)))
    return [f"{part[0].upper()}{part[1:]}." for part in sentences if part]


def _groups(run: Run) -> str:
    """How many communities have nodes of their own, and how far they overlap."""
    found, groups = len(np.unique(run.interaction.argmax(axis=1))), run.num_metacommunities
    memberships = run.member.sum(axis=1)
    several, none = int((memberships > 1).sum()), int((memberships == 0).sum())
    kept = f"{groups} communities" if found == groups else f"{found} of {groups} communities"
    are = "node is a member" if several == 1 else "nodes are members"
    first = f"The {run.num_nodes:,} nodes fall into {kept}; {several:,} {are} of several"
    return f"{first}, {none:,} of none." if none else f"{first}."


def even_split(run: Run) -> str:
    """What to say where the shares of all edges are about the same; nothing where they differ."""
    if run.num_metacommunities < 2 or not len(run.edge_weight):
        return ""
    # The mean total variation between the shares of an edge and those of all edges.
    if np.abs(run.edge_weight - run.edge_weight.mean(axis=0)).sum(axis=1).mean() / 2 >= NEARLY_EVEN:
        return ""
    if ("partition", "even") not in (row for _, rows in settings_groups(run) for row in rows):
        return "all edges are split almost alike, so an even split should do as well"
    tried = _tried(run)
    if not {"learned", "even"} <= tried.keys():
        return "all edges are split evenly, as the settings ask"
    return (
        "all edges are split evenly, which did at least as well on validation labels "
        f"({next(iter(tried.values()))}) as a learned split ({tried['learned']})"
    )


def _tried(run: Run) -> dict[str, str]:
    """Validation accuracy of each of what the partition ``"auto"`` tried, the kept one first."""
    given = run.metrics.get("partitions", {})
    return {name: f"{100 * value:.1f} %" for name, value in given.items() if name in TRIED}


def _evidence(run: Run) -> str:
    """Which communities the predictions rest on most."""
    if run.support is None or run.num_metacommunities < 2:
        return ""
    if alike := even_split(run):
        return alike
    support = np.abs(run.support).mean(axis=0)
    if not support.sum() > 0:
        return ""
    order = np.argsort(-support, kind="stable")
    needed = int((np.cumsum(support[order]) < MOST * support.sum()).sum()) + 1
    if needed > len(order) / 2:
        return f"the evidence is spread over all {len(order)} communities"
    names = listed([str(k) for k in sorted(order[:needed].tolist())])
    carry = "communities {} carry" if needed > 1 else "community {} carries"
    return f"{carry.format(names)} most of the evidence"


def part_rows(run: Run) -> list[dict[str, Any]]:
    """Weight, share and kinds of each part of the edges; none where only shares are known."""
    given = run.metrics.get("parts", [])
    if len(given) != run.num_metacommunities:
        return []
    rows, known, colours = [], False, community_colours(len(given))
    for name, colour, part in zip(run.community_names, colours, given, strict=True):
        kinds = part.get("kinds") if isinstance(part.get("kinds"), dict) else {}
        row = {key: number_in(part, key) for key in ("relevance", "share", "homophily")}
        known |= bool(row["relevance"] or row["homophily"] is not None or kinds)
        commonest_first = sorted(kinds.items(), key=lambda kind: -kind[1])
        rows.append({"name": name, "colour": colour, **row, "kinds": commonest_first})
    return rows if known else []


def part_verdict(run: Run, rows: list[dict[str, Any]]) -> str:
    """What the split and the weights of its parts say about its value."""
    if alike := even_split(run):
        return f"{alike[0].upper()}{alike[1:]}, whatever the weights."
    tried = [f"{value} with {TRIED[name]}" for name, value in _tried(run).items()]
    beside = f"{listed(tried[:1])}, beside {listed(tried[1:])}"
    chosen = f"Validation accuracy was {beside}. " if len(tried) > 1 else ""
    weighed = sorted((row["relevance"], row["name"]) for row in rows if row["relevance"])
    if len(weighed) < 2:
        return chosen
    (low, least), (high, most) = weighed[0], weighed[-1]
    if high < 1.5 * low:
        return f"{chosen}All communities have about the same weight: the split matters little here."
    times = f"{high / low:.1f}" if high < 100 * low else "over a hundred"
    return f"{chosen}An edge of {most} counts {times} times as much as an edge of {least}."


def size_line(run: Run) -> str:
    """Nodes, edges and communities in one line."""
    parts = [f"{run.num_nodes:,} nodes", f"{run.edge_index.shape[1] // 2:,} edges"]
    if {"nodes", "edges"} <= (whole := run.metrics.get("excerpt_of", {})).keys():
        parts = [f"an excerpt of {whole['nodes']:,} nodes", f"{whole['edges']:,} edges"]
    if run.batch is not None:
        parts.insert(0, f"{run.num_items:,} graphs")
    if run.class_names:
        parts.append(f"{len(run.class_names)} classes")
    total, groups = run.memberships.shape[1], run.num_metacommunities
    parts.append(f"{groups} communities" + (f" of {total} affiliations" if total > groups else ""))
    return " · ".join(parts)


def settings_groups(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Settings by section, in the order of the file."""
    plain = {key: value for key, value in run.settings.items() if not isinstance(value, dict)}
    sections = {key: value for key, value in run.settings.items() if isinstance(value, dict)}
    groups = ({"general": plain} if plain else {}) | sections
    return [(name, [(k, str(v)) for k, v in values.items()]) for name, values in groups.items()]
