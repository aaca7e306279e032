"""The words and tables of the page."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix

from vepm.report.communities import (
    Bools,
    Floats,
    community_table,
    shares,
    typical_features,
    typical_nodes,
)
from vepm.report.figures.style import class_colours, community_colours
from vepm.report.run import Run

LEVELS = "0123456789abcdef"


def edge_density(run: Run) -> float:
    """Edges over pairs of nodes of the same graph."""
    sizes = np.array([run.num_nodes]) if run.batch is None else np.bincount(run.batch)
    pairs = float((sizes * (sizes - 1) / 2).sum())
    return run.edge_index.shape[1] / 2 / pairs if pairs else 0.0


def most_confused(run: Run, count: int = 5) -> list[dict[str, Any]]:
    """The pairs of classes that test items were most often confused in."""
    tested = _labelled(run, "test")
    if tested is None or not tested.any() or run.labels is None or run.prediction is None:
        return []
    classes = range(len(run.class_names))
    matrix = confusion_matrix(run.labels[tested], run.prediction[tested], labels=classes)
    np.fill_diagonal(matrix, 0)
    worst = np.argsort(-matrix, axis=None, kind="stable")[:count]
    pairs = (divmod(int(place), len(matrix)) for place in worst)
    return [
        {"true": t, "predicted": p, "count": int(matrix[t, p])} for t, p in pairs if matrix[t, p]
    ]


def headline(run: Run) -> dict[str, Any]:
    """The numbers a reader looks for first; None where a run has no such number."""
    accuracy = number_in(run.metrics, "test_accuracy")
    tested, validated = _labelled(run, "test"), _labelled(run, "val")
    count = int(tested.sum()) if tested is not None else 0
    return {
        "accuracy": accuracy,
        "spread": number_in(run.metrics, "test_accuracy_std"),
        "interval": test_interval(run),
        "tested": count,
        "validated": int(validated.sum()) if validated is not None else 0,
        "val_accuracy": number_in(run.metrics, "val_accuracy"),
        "rule": run.metrics.get("rule"),
        "best_epoch": chosen_epoch(run),
        "ece": number_in(run.metrics, "ece"),
        "nmi": number_in(run.metrics, "nmi"),
        "baselines": _baselines(run, accuracy),
    }


def test_interval(run: Run) -> tuple[float, float] | None:
    """The 95 % interval of the test accuracy, where there is one."""
    accuracy, tested = number_in(run.metrics, "test_accuracy"), _labelled(run, "test")
    if accuracy is None or tested is None or not tested.any():
        return None
    count = int(tested.sum())
    found = binomtest(round(accuracy * count), count).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def warnings(run: Run) -> list[str]:
    """What looked wrong with the training, from ``metrics.json``."""
    found = run.metrics.get("warnings")
    return [str(line) for line in found] if isinstance(found, list) else []


def chosen_epoch(run: Run) -> int | None:
    """The epoch whose parameters were kept, where one was chosen."""
    epoch = run.metrics.get("best_epoch")
    chosen = run.prediction is not None and isinstance(epoch, int) and epoch >= 0
    return epoch if chosen else None


def size_line(run: Run) -> str:
    """Nodes, edges and communities in one line."""
    edges = run.edge_index.shape[1] // 2
    parts = [f"{run.num_nodes:,} nodes", f"{edges:,} edges"]
    whole = run.metrics.get("excerpt_of")
    if whole:
        parts = [f"an excerpt of {whole['nodes']:,} nodes", f"{whole['edges']:,} edges"]
    if run.batch is not None:
        parts.insert(0, f"{run.num_graphs:,} graphs")
    if len(run.class_names):
        parts.append(f"{len(run.class_names)} classes")
    total, groups = run.memberships.shape[1], run.num_metacommunities
    parts.append(f"{groups} communities" + (f" of {total} affiliations" if total > groups else ""))
    return " · ".join(parts)


def community_rows(run: Run) -> list[dict[str, Any]]:
    """One row per metacommunity for the table and the cards."""
    table = community_table(run.interaction, run.member, run.edge_index, run.edge_weight, run.batch)
    nodes = typical_nodes(run.interaction)
    features = _features(run)
    bucket = run.interaction.argmax(axis=1)
    mixes = [_label_mix(run, bucket == k) for k in range(run.num_metacommunities)]
    pictures = _mean_images(run)
    colours = community_colours(run.num_metacommunities)
    return [
        {
            "name": name,
            "nickname": _nickname(mixes[k], features[k]),
            "colour": colour,
            "nodes": int(table.nodes[k]),
            "members": int(table.members[k]),
            "edge_mass": float(table.edge_mass[k]),
            "density": _finite(table.density[k]),
            "overlapping": _finite(table.overlapping[k]),
            "closest": _closest(table.jaccard, k),
            "typical_nodes": [(int(n), _full_name(run, n)) for n in nodes[k]],
            "typical_features": features[k],
            "labels": mixes[k],
            "image": pictures[k] if pictures else None,
        }
        for k, (name, colour) in enumerate(zip(run.community_names, colours, strict=True))
    ]


def _nickname(labels: list[dict[str, Any]], features: list[tuple[str, float]]) -> str:
    """What is typical of a community: the label of most of its nodes, or its named features."""
    if labels and labels[0]["share"] >= 0.6:
        return f"mostly {labels[0]['name']}"
    named = [name for name, _ in features[:2] if not re.fullmatch(r"(feature |pixel_)[\d_]+", name)]
    return ", ".join(named)


def _mean_images(run: Run) -> list[str]:
    """The mean picture of each community, where features are pixels."""
    if run.features is None or pixel_grid(run.feature_names) is None:
        return []
    weight = shares(run.interaction)
    return images(weight.T @ run.features / np.maximum(weight.sum(axis=0), 1e-12)[:, None])


def pixel_grid(feature_names: Sequence[str]) -> tuple[int, int] | None:
    """Rows and columns of an image whose pixels the features are, in reading order."""
    found = [re.fullmatch(r"pixel_(\d+)_(\d+)", name) for name in feature_names]
    if not found or not all(found):
        return None
    places = [(int(match[1]), int(match[2])) for match in found if match]
    rows, columns = places[-1][0] + 1, places[-1][1] + 1
    return (rows, columns) if places == list(np.ndindex(rows, columns)) else None


def images(features: Floats) -> list[str]:
    """Each row of features as a string of grey levels, one hexadecimal digit a pixel."""
    finite = np.where(np.isfinite(features), features, 0.0)
    scale = float(finite.max(initial=0.0)) or 1.0
    levels = (15 * np.clip(finite / scale, 0, 1)).round().astype(int)
    return ["".join(LEVELS[level] for level in row) for row in levels.tolist()]


def settings_groups(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Settings by section, in the order of the file."""
    plain = [(key, str(v)) for key, v in run.settings.items() if not isinstance(v, dict)]
    groups = [("general", plain)] if plain else []
    for section, values in run.settings.items():
        if isinstance(values, dict):
            groups.append((section, [(key, str(value)) for key, value in values.items()]))
    return groups


def provenance(run: Run) -> list[tuple[str, str]]:
    """Seed, machine, versions and time of the run."""
    rows = [("seed", str(run.metrics["seed"]))] if "seed" in run.metrics else []
    if "device" in run.metrics:
        rows.append(("device", str(run.metrics["device"])))
    seconds = number_in(run.metrics, "seconds")
    if seconds is not None:
        rows.append(("time", f"{seconds:,.1f} s"))
    versions = run.metrics.get("versions")
    if isinstance(versions, dict):
        rows += [(str(name), str(v)) for name, v in versions.items() if v is not None]
    return rows


def _full_name(run: Run, node: int) -> str:
    """A node's name, with its graph's where there are several."""
    name = run.node_names[node]
    return name if run.batch is None else f"{run.graph_names[run.batch[node]]}: {name}"


def number_in(given: Mapping[str, Any], key: str) -> float | None:
    """A finite number in a mapping read from a file; None where there is none."""
    value = given.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _finite(value)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _labelled(run: Run, split: str) -> Bools | None:
    if run.labels is None or split not in run.masks:
        return None
    return run.masks[split] & (run.labels >= 0)


def _baselines(run: Run, accuracy: float | None) -> list[dict[str, Any]]:
    given = run.metrics.get("baselines")
    if accuracy is None or not isinstance(given, dict):
        return []
    rows = [{"name": "VEPM", "accuracy": accuracy, "ours": True}]
    for name, scores in given.items():
        value = scores.get("test_accuracy") if isinstance(scores, dict) else scores
        if isinstance(value, int | float) and math.isfinite(value):
            rows.append({"name": str(name), "accuracy": float(value), "ours": False})
    return rows if len(rows) > 1 else []


def _closest(jaccard: Floats, k: int) -> tuple[str, float] | None:
    others = jaccard[k].copy()
    others[k] = -1
    nearest = int(others.argmax())
    return (f"Community {nearest}", float(others[nearest])) if others[nearest] > 0 else None


def _features(run: Run) -> list[list[tuple[str, float]]]:
    if run.features is None or not run.features.shape[1]:
        return [[] for _ in range(run.interaction.shape[1])]
    ranked = typical_features(run.features, run.interaction)
    return [[(run.feature_names[f], lift) for f, lift in row] for row in ranked]


def _label_mix(run: Run, inside: Bools) -> list[dict[str, Any]]:
    """Labels of the nodes whose main community this is, the commonest first."""
    if run.labels is None or run.batch is not None:
        return []
    labels = run.labels[inside]
    counts = np.bincount(labels[labels >= 0], minlength=len(run.class_names))
    colours = class_colours(len(run.class_names))
    return [
        {"name": run.class_names[c], "colour": colours[c], "share": counts[c] / counts.sum()}
        for c in np.argsort(-counts, kind="stable")
        if counts[c]
    ]
