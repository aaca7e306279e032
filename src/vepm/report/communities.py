"""What the communities of a run look like: who belongs to them, and what is typical of them."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vepm import nn
from vepm.report.run import Array, Bools, Floats, Ints, Run, listed
from vepm.report.style import class_colours, community_colours

MOSTLY = 0.6
"""At most three labels that together have this share of a community's nodes give it a name."""
BACKGROUND = "links that no other community explains"
UNNAMED = re.compile(r"(feature |label_|pixel_)[\d_]+")


def community_rows(run: Run) -> list[dict[str, Any]]:
    """One row per metacommunity for the table and the cards."""
    main, member = run.interaction.argmax(axis=1), run.member
    members = member.sum(axis=0)
    elsewhere = (member & (member.sum(axis=1, keepdims=True) > 1)).sum(axis=0)
    given = _telling_features(run)
    features = typical_features(given, run.interaction, run.feature_names)
    pictured = pixel_grid(run.feature_names) is not None
    pictures = images(_means(given, run.interaction)) if pictured else [""] * len(members)
    unexplained = background_parts(run)
    rows = []
    for k, nodes in enumerate(typical_nodes(run.interaction)):
        labels = _label_mix(run, main == k)
        names = [run.node_names[node] for node in nodes]
        if run.batch is not None:
            graphs = [run.graph_names[graph] for graph in run.batch[nodes]]
            names = [f"{graph}: {name}" for graph, name in zip(graphs, names, strict=True)]
        rows.append(
            {
                "name": run.community_names[k],
                "nickname": BACKGROUND if unexplained[k] else _nickname(labels, features[k]),
                "colour": community_colours(k + 1)[k],
                "nodes": int((main == k).sum()),
                "members": int(members[k]),
                "edge_mass": float(run.edge_weight[:, k].sum() / 2),
                "overlapping": elsewhere[k] / members[k] if members[k] else None,
                "typical_nodes": list(zip(nodes.tolist(), names, strict=True)),
                "typical_features": features[k],
                "labels": labels,
                "image": pictures[k] if len(nodes) else "",
            }
        )
    return rows


def background_parts(run: Run) -> Bools:
    """Metacommunities of nothing but communities to which all nodes belong alike [K]."""
    alike = np.all(run.memberships == run.memberships[:1], axis=0)
    part = part_of_each(len(alike), run.grouping)
    count = run.interaction.shape[1]
    same, other = (np.bincount(part[which], minlength=count) for which in (alike, ~alike))
    return (same > other) & other.any()


def shares(interaction: Floats) -> Floats:
    """Each node's interactions as parts of one [N, K]; even where a node has none."""
    return _ratio(interaction, interaction.sum(axis=1, keepdims=True), 1 / interaction.shape[1])


def _ratio(part: Array, whole: Array, otherwise: float) -> Floats:
    """Part over whole, or another number where the whole is zero."""
    with np.errstate(all="ignore"):
        return np.where(whole > 0, part / whole, otherwise)


def part_of_each(num_communities: int, grouping: Floats | int) -> Ints:
    """The metacommunity to which each community mostly belongs [C]."""
    if not isinstance(grouping, int):
        return grouping.argmax(axis=1)
    return np.repeat(np.arange(grouping), nn.segment_sizes(num_communities, grouping))


def adjacency_matrix(edge_index: Ints, num_nodes: int) -> Any:
    """Edges as a SciPy sparse matrix [N, N], whose type SciPy's graph functions do not agree on."""
    return csr_array((np.ones(edge_index.shape[1]), edge_index), shape=(num_nodes, num_nodes))


def induced(edge_index: Ints, nodes: Ints, num_nodes: int) -> tuple[Bools, Ints]:
    """Which edges join two of the given nodes, and these edges between places in ``nodes``."""
    place = np.full(num_nodes, -1)
    place[nodes] = np.arange(len(nodes))
    inside = np.all(place[edge_index] >= 0, axis=0)
    return inside, place[edge_index[:, inside]]


def bucket_order(interaction: Floats) -> tuple[Ints, Ints]:
    """Nodes by main metacommunity, strongest first; and the main metacommunity of each node."""
    bucket = interaction.argmax(axis=1)
    return np.lexsort((-interaction.max(axis=1), bucket)), bucket


def typical_nodes(interaction: Floats, count: int = 6) -> list[Ints]:
    """The nodes of each metacommunity's bucket that interact most through it."""
    order, bucket = bucket_order(interaction)
    return [order[bucket[order] == k][:count] for k in range(interaction.shape[1])]


def typical_features(
    features: Floats, interaction: Floats, names: Sequence[str], count: int = 8
) -> list[list[tuple[str, float]]]:
    """Features with the highest mean in each metacommunity, in standard deviations above all."""
    lift = _means(features, interaction) - features.mean(axis=0)
    lift = _ratio(lift, features.std(axis=0), 0.0)
    best = np.argsort(-lift, axis=1, kind="stable")[:, :count]
    return [
        [(names[f], float(row[f])) for f in order if row[f] > 0]
        for row, order in zip(lift, best, strict=True)
    ]


def _means(features: Floats, interaction: Floats) -> Floats:
    """Mean features of each metacommunity's bucket [K, F]; those of all nodes if it is empty."""
    inside = np.eye(interaction.shape[1])[interaction.argmax(axis=1)]
    count = inside.sum(axis=0)[:, None]
    return np.where(count > 0, _ratio(inside.T @ features, count, 0.0), features.mean(axis=0))


def _telling_features(run: Run) -> Floats:
    """The features [N, F]; none where each of them only says which node it is."""
    given = run.features
    if given is None or (
        given.shape[0] == given.shape[1] and np.array_equal(given, np.eye(len(given)))
    ):
        return np.zeros((run.num_nodes, 0))
    return given


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
