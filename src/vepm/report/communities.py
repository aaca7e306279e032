"""What the communities of a run look like: who belongs to them, and what is typical of them."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from vepm.report.figures import bucket_order
from vepm.report.run import Array, Bools, Floats, Run, listed
from vepm.report.style import class_colours, community_colours

MOSTLY = 0.6  # up to three labels with this share of a community's nodes give it a name
TYPICAL_NODES, TYPICAL_FEATURES = 6, 8
BACKGROUND = "links that no other community explains"
UNNAMED = re.compile(r"(feature |label_|pixel_)[\d_]+")


def community_rows(run: Run) -> list[dict[str, Any]]:
    """One row per metacommunity for the table and the cards."""
    (order, main), member = bucket_order(run.interaction), run.member
    members = member.sum(axis=0)
    elsewhere = (member & (member.sum(axis=1, keepdims=True) > 1)).sum(axis=0)
    nothing = np.zeros((run.num_nodes, 0))
    given = nothing if run.features is None else run.features
    if given.shape[0] == given.shape[1] and np.array_equal(given, np.eye(len(given))):
        given = nothing  # each feature only says which node it is
    features = typical_features(given, run.interaction, run.feature_names)
    pictured = pixel_grid(run.feature_names) is not None
    pictures = images(_means(given, run.interaction)) if pictured else [""] * len(members)
    names = run.node_names
    if run.batch is not None:
        pairs = zip(run.batch, names, strict=False)
        names = tuple(f"{run.graph_names[graph]}: {name}" for graph, name in pairs)
    rows = []
    for k, colour in enumerate(community_colours(len(members))):
        labels, nodes = _label_mix(run, main == k), order[main[order] == k]
        rows.append(
            {
                "name": run.community_names[k],
                "nickname": BACKGROUND if run.background[k] else _nickname(labels, features[k]),
                "colour": colour,
                "nodes": len(nodes),
                "members": int(members[k]),
                "edge_mass": float(run.edge_weight[:, k].sum() / 2),
                "overlapping": elsewhere[k] / members[k] if members[k] else None,
                "typical_nodes": [(int(node), names[node]) for node in nodes[:TYPICAL_NODES]],
                "typical_features": features[k],
                "labels": labels,
                "image": pictures[k] if len(nodes) else "",
            }
        )
    return rows


def _ratio(part: Array, whole: Array, otherwise: Array | float) -> Floats:
    """Part over whole, or another value where the whole is zero."""
    with np.errstate(all="ignore"):
        return np.where(whole > 0, part / whole, otherwise)


def typical_features(
    features: Floats, interaction: Floats, names: Sequence[str]
) -> list[list[tuple[str, float]]]:
    """Features with the highest mean in each metacommunity, in standard deviations above all."""
    above = _means(features, interaction) - features.mean(axis=0)
    lift = _ratio(above, features.std(axis=0), 0.0)
    best = np.argsort(-lift, axis=1, kind="stable")[:, :TYPICAL_FEATURES]
    return [
        [(names[f], float(row[f])) for f in order if row[f] > 0]
        for row, order in zip(lift, best, strict=True)
    ]


def _means(features: Floats, interaction: Floats) -> Floats:
    """Mean features of each metacommunity's bucket [K, F]; those of all nodes if it is empty."""
    inside = np.eye(interaction.shape[1])[interaction.argmax(axis=1)]
    count = inside.sum(axis=0)[:, None]
    return _ratio(inside.T @ features, count, features.mean(axis=0))


def _label_mix(run: Run, inside: Bools) -> list[dict[str, Any]]:
    """Labels of the nodes whose main community this is, the commonest first."""
    if run.labels is None or run.batch is not None:
        return []
    colours = class_colours(len(run.class_names))
    counts = np.bincount(run.labels[inside & (run.labels >= 0)], minlength=len(colours))
    return [
        {"name": run.class_names[c], "colour": colours[c], "share": counts[c] / counts.sum()}
        for c in np.argsort(-counts, kind="stable")
        if counts[c]
    ]


def _nickname(labels: list[dict[str, Any]], features: list[tuple[str, float]]) -> str:
    """What is typical of a community: the labels of most of its nodes, or its named features."""
    covered = np.cumsum([label["share"] for label in labels[:3]])
    if len(covered) and covered[-1] >= MOSTLY:
        first = [label["name"] for label in labels[: int((covered < MOSTLY).sum()) + 1]]
        return f"mostly {listed(first)}"
    return ", ".join(name for name, _ in features[:2] if not UNNAMED.fullmatch(name))


def pixel_grid(feature_names: Sequence[str]) -> tuple[int, int] | None:
    """Rows and columns of an image whose pixels the features are, in reading order."""
    found = [re.fullmatch(r"pixel_(\d+)_(\d+)", name) for name in feature_names]
    places = [(int(match[1]), int(match[2])) for match in found if match]
    if not places or len(places) < len(found):
        return None
    rows, columns = places[-1][0] + 1, places[-1][1] + 1
    return (rows, columns) if places == list(np.ndindex(rows, columns)) else None


def images(features: Floats) -> list[str]:
    """Each row of features as a string of grey levels, one hexadecimal digit a pixel."""
    finite = np.where(np.isfinite(features), features, 0.0)
    scale = float(finite.max(initial=0.0)) or 1.0
    levels = (15 * np.clip(finite / scale, 0, 1)).round().astype(int)
    return ["".join(f"{level:x}" for level in row) for row in levels.tolist()]
