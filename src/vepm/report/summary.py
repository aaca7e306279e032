"""What a page says of a run: its conclusion, its numbers and its settings."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix

from vepm.report.run import Ints, Run, listed
from vepm.report.style import community_colours

UNSURE = 0.6  # an item whose likeliest class has a lower probability is called uncertain
BASELINES = {
    "label-propagation": "label propagation",
    **{name.lower(): name for name in ("GAT", "GCN", "GCN-64", "GIN", "GRAND", "MLP", "ChebNet")},
    **{name.lower(): name for name in ("DisenGCN", "FactorGCN", "GraphSAGE")},
}
"""How baselines are written; others go by the name they have on the command line."""
MOST_DRAWN_CLASSES = 1000  # classes of a confusion matrix that is drawn
MOST = 0.6  # communities that together have this part of the evidence carry most of it
TRIED = {
    "learned": "a learned split",
    "even": "an even split",
    "linear": "a learned split whose parts a linear layer reads",
}
"""What the partition ``"auto"`` tries, in words."""
NEARLY_EVEN = 0.1  # edges whose shares differ by less than this, on average, are split alike


def number_in(given: Mapping[str, Any], key: str) -> float | None:
    """A finite number in a mapping read from a file; None where there is none."""
    value: Any = given.get(key)
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def headline(run: Run) -> dict[str, Any]:
    """The numbers a reader looks for first; None where a run has no such number."""
    epoch = run.metrics.get("best_epoch", -1)
    names = ("test_accuracy", "val_accuracy", "ece", "nmi")
    found: dict[str, Any] = {name: number_in(run.metrics, name) for name in names}
    accuracy, rivals = found["test_accuracy"], _baselines(run)
    return found | {
        "interval": test_interval(run),
        "tested": int(run.labelled("test").sum()),
        "validated": int(run.labelled("val").sum()),
        "rule": run.metrics.get("rule"),
        "best_epoch": epoch if run.prediction is not None and epoch >= 0 else None,
        "scores": {"VEPM": accuracy} | rivals if rivals and accuracy is not None else {},
    }


def test_interval(run: Run) -> tuple[float, float] | None:
    """Wilson's 95 % interval of the test accuracy, where there is one."""
    accuracy, count = number_in(run.metrics, "test_accuracy"), int(run.labelled("test").sum())
    if accuracy is None or not count:
        return None
    found = binomtest(round(accuracy * count), count).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def _baselines(run: Run) -> dict[str, float]:
    """Test accuracy of each baseline."""
    found = {}
    for name, scores in run.metrics.get("baselines", {}).items():
        given = scores if isinstance(scores, dict) else {"test_accuracy": scores}
        if (accuracy := number_in(given, "test_accuracy")) is not None:
            found[BASELINES.get(name, name)] = accuracy
    return found


def test_confusion(run: Run) -> Ints | None:
    """Test items by true and by predicted class [classes, classes], where a picture can hold it."""
    tested, classes = run.labelled("test"), range(len(run.class_names))
    if run.labels is None or run.prediction is None or not tested.any():
        return None
    if len(classes) > MOST_DRAWN_CLASSES:
        return None
    return confusion_matrix(run.labels[tested], run.prediction[tested], labels=classes)


def most_confused(run: Run, count: int = 5) -> list[dict[str, int]]:
    """The pairs of classes that test items were most often confused in."""
    if run.labels is None or run.prediction is None:
        return []
    wrong = run.labelled("test") & (run.labels != run.prediction) & (run.prediction >= 0)
    both = np.stack([run.labels[wrong], run.prediction[wrong]])
    pairs, counts = np.unique(both, axis=1, return_counts=True)
    worst = np.argsort(-counts, kind="stable")[:count]
    rows = zip(*pairs[:, worst], counts[worst], strict=True)
    return [{"true": t, "predicted": p, "count": n} for t, p, n in rows]


def conclusion(run: Run) -> list[str]:
    """What the page shows, in one or two sentences."""
    accuracy, rivals = number_in(run.metrics, "test_accuracy"), _baselines(run)
    if accuracy is None:
        return [_groups(run)]
    first = f"{100 * accuracy:.1f} % of the test {run.items} are classified correctly"
    if rivals:
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
    """What to say where the shares of all edges are about the same; nothing where they differ.

    Measured by the mean total variation between the shares of an edge and those of all edges.
    """
    if run.num_metacommunities < 2 or not len(run.edge_weight):
        return ""
    apart = np.abs(run.edge_weight - run.edge_weight.mean(axis=0)).sum(axis=1) / 2
    if apart.mean() >= NEARLY_EVEN:
        return ""
    if ("partition", "even") in (row for _, rows in settings_groups(run) for row in rows):
        tried = _tried(run)
        if not {"learned", "even"} <= tried.keys():
            return "all edges are split evenly, as the settings ask"
        did = "did at least as well on validation labels ({even}) as a learned split ({learned})"
        return f"all edges are split evenly, which {did.format(**tried)}"
    return "all edges are split almost alike, so an even split should do as well"


def _tried(run: Run) -> dict[str, str]:
    """Validation accuracy of each of what the partition ``"auto"`` tried, the kept one first."""
    given = run.metrics.get("partitions")
    found = {n: number_in(given, n) for n in given} if isinstance(given, dict) else {}
    return {n: f"{100 * v:.1f} %" for n, v in found.items() if n in TRIED and v is not None}


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
    """Weight and share of each part of the edges, as ``metrics.json`` has them.

    None where it has shares alone, which the table of communities shows already.
    """
    given = run.metrics.get("parts", [])
    if len(given) != run.num_metacommunities or not all(isinstance(p, dict) for p in given):
        return []
    colours = community_colours(len(given))
    rows = [
        {
            "name": name,
            "colour": colour,
            **{key: number_in(part, key) for key in ("relevance", "share", "homophily")},
            "kinds": _kinds(part.get("kinds")),
        }
        for name, colour, part in zip(run.community_names, colours, given, strict=True)
    ]
    known = any(row["relevance"] or row["homophily"] is not None or row["kinds"] for row in rows)
    return rows if known else []


def _kinds(given: Any) -> list[tuple[str, float]]:
    """Known kinds of edges in a part, the commonest first."""
    numbers = ((name, number_in(given, name)) for name in given) if isinstance(given, dict) else ()
    found = [(name, share) for name, share in numbers if share is not None]
    return sorted(found, key=lambda kind: -kind[1])


def part_verdict(run: Run, rows: list[dict[str, Any]]) -> str:
    """What the split, and the weights of its parts, say about what it is worth."""
    if alike := even_split(run):
        return f"{alike[0].upper()}{alike[1:]}, whatever the weights."
    return f"{_chosen(run)}{_weights_in_words(rows)}"


def _chosen(run: Run) -> str:
    found = [f"{value} with {TRIED[name]}" for name, value in _tried(run).items()]
    beside = f"{listed(found[:1])}, beside {listed(found[1:])}"
    return f"Validation accuracy was {beside}. " if len(found) > 1 else ""


def _weights_in_words(rows: list[dict[str, Any]]) -> str:
    weighed = sorted((row["relevance"], row["name"]) for row in rows if row["relevance"])
    if len(weighed) < 2:
        return ""
    (low, least), (high, most) = weighed[0], weighed[-1]
    if high < 1.5 * low:
        return "All communities have about the same weight: the split makes little difference here."
    times = f"{high / low:.1f}" if high < 100 * low else "over a hundred"
    return f"An edge of {most} counts {times} times as much as an edge of {least}."


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
    return [
        (name, [(key, str(value)) for key, value in values.items()])
        for name, values in groups.items()
    ]


def provenance(run: Run) -> list[tuple[str, str]]:
    """Seed, machine, versions and time of the run."""
    seconds = number_in(run.metrics, "seconds")
    rows = {name: run.metrics.get(name) for name in ("seed", "device")}
    rows["time"] = None if seconds is None else f"{seconds:,.1f} s"
    rows |= run.metrics.get("versions", {})
    return [(str(name), str(value)) for name, value in rows.items() if value is not None]
