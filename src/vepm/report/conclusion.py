"""What a page concludes: the gist of a run, and what each part of its edges is worth."""

from typing import Any

import numpy as np

from vepm.report.figures.style import community_colours
from vepm.report.run import Run
from vepm.report.summary import number_in

UNSURE = 0.6
"""An item whose likeliest class has a lower probability is called uncertain."""
MOST = 0.6
"""Communities that together have this part of the evidence carry most of it."""


def conclusion(run: Run, headline: dict[str, Any]) -> list[str]:
    """What the page shows, in one or two sentences."""
    if headline["accuracy"] is None:
        return _groups(run)
    first = f"{100 * headline['accuracy']:.1f} % of the test {run.items} are right"
    rivals = [row for row in headline["baselines"] if not row["ours"]]
    if rivals:
        best = max(rivals, key=lambda row: float(row["accuracy"]))
        points = 100 * (headline["accuracy"] - best["accuracy"])
        side = "above" if points >= 0 else "below"
        which = ", the best baseline" if len(rivals) > 1 else ""
        first += f", {abs(points):.1f} points {side} {best['name']}{which}"
    rest = [part for part in (_evidence(run), _uncertain(run)) if part]
    return [f"{first}.", *([_sentence("; ".join(rest))] if rest else [])]


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _groups(run: Run) -> list[str]:
    found = np.unique(run.interaction.argmax(axis=1))
    several = int((run.member.sum(axis=1) > 1).sum())
    words = f"{len(found)} of {run.num_metacommunities} communities are some node's main one"
    return [f"{words}; {several:,} of {run.num_nodes:,} nodes are members of several."]


def _evidence(run: Run) -> str:
    """Which communities the predictions rest on most."""
    if run.log_odds is None or run.log_odds_without is None or run.num_metacommunities < 2:
        return ""
    support = np.abs(run.log_odds[:, None] - run.log_odds_without).mean(axis=0)
    if not support.sum() > 0:
        return ""
    order = np.argsort(-support, kind="stable")
    needed = int((np.cumsum(support[order]) < MOST * support.sum()).sum()) + 1
    if needed > len(order) / 2:
        return f"the evidence is spread over all {len(order)} communities"
    names = sorted(order[:needed].tolist())
    listed = " and ".join(
        [", ".join(map(str, names[:-1])), str(names[-1])] if names[1:] else [str(names[0])]
    )
    plural = "communities" if needed > 1 else "community"
    return f"{plural} {listed} {'carry' if needed > 1 else 'carries'} most of the evidence"


def _uncertain(run: Run) -> str:
    if run.probabilities is None:
        return ""
    count = int((run.confidence < UNSURE).sum())
    items = run.items if count != 1 else run.task
    return (
        f"{count:,} {items} {'are' if count != 1 else 'is'} uncertain (under {100 * UNSURE:.0f} %)"
    )


def part_rows(run: Run) -> list[dict[str, Any]]:
    """What each part of the edges is worth, as ``metrics.json`` has it."""
    given = run.metrics.get("parts")
    whole = isinstance(given, list) and len(given) == run.num_metacommunities
    if not isinstance(given, list) or not whole or not all(isinstance(p, dict) for p in given):
        return []
    colours = community_colours(len(given))
    return [
        {
            "name": name,
            "colour": colour,
            **{key: number_in(part, key) for key in ("relevance", "share", "homophily")},
            "kinds": _kinds(part.get("kinds")),
        }
        for name, colour, part in zip(run.community_names, colours, given, strict=True)
    ]


def _kinds(given: Any) -> list[tuple[str, float]]:
    """Known kinds of edges in a part, the commonest first."""
    if not isinstance(given, dict):
        return []
    numbers = [(str(name), number_in(given, name)) for name in given]
    found = [(name, value) for name, value in numbers if value is not None]
    return sorted(found, key=lambda kind: -kind[1])


def part_verdict(rows: list[dict[str, Any]]) -> str:
    """What the weights of the parts say about the split."""
    weighed = sorted((row["relevance"], row["name"]) for row in rows if row["relevance"])
    if len(weighed) < 2:
        return ""
    (low, least), (high, most) = weighed[0], weighed[-1]
    if high < 1.5 * low:
        return "The labels weigh all parts about alike: here the split decides little."
    times = f"{high / low:.1f}" if high < 100 * low else "over a hundred"
    return f"The labels count an edge of {most} {times} times as much as one of {least}."
