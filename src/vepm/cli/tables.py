"""Results as CSV files."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vepm.data import Dataset
from vepm.data.tables import read_edge_list
from vepm.errors import InputError
from vepm.estimators import Links, Memberships
from vepm.files import write_csv
from vepm.training import Explanation

MOST_COMMUNITIES = 3
"""Communities that are written beside each pair of nodes."""


def write_predictions(
    path: Path, dataset: Dataset, class_names: tuple[str, ...], probabilities: NDArray[Any]
) -> None:
    """The most probable class of every node or graph, and the probability of each class."""
    write_csv(
        path,
        ["id", "prediction", *(f"p_{name}" for name in class_names)],
        (
            [item, class_names[int(row.argmax())], *(f"{p:.6f}" for p in row)]
            for item, row in zip(dataset.item_names, probabilities, strict=True)
        ),
    )


def write_communities(
    folder: Path, dataset: Dataset, found: Memberships, explained: Explanation
) -> None:
    """Memberships of the nodes and splits of the edges."""
    names = dataset.item_names
    parts = range(found.soft.shape[1])
    write_csv(
        folder / "memberships.csv",
        ["id", "community", *(f"strength_{k}" for k in parts), *(f"member_{k}" for k in parts)],
        (
            [name, hard, *(f"{s:.6f}" for s in soft), *(int(m) for m in member)]
            for name, hard, soft, member in zip(names, *found, strict=True)
        ),
    )
    ends, shares = explained.edge_index.tolist(), explained.edge_weight.cpu().numpy()
    write_csv(
        folder / "edges.csv",
        ["source", "target", *(f"share_{k}" for k in parts)],
        (
            [names[i], names[j], *(f"{s:.6f}" for s in row)]
            for i, j, row in zip(*ends, shares, strict=True)
            if i < j
        ),
    )


def write_links(path: Path, links: Links) -> None:
    """Pairs of nodes with their probability, and the communities that most of it runs through."""
    shown = range(min(MOST_COMMUNITIES, links.share.shape[1]))
    order = np.argsort(-links.share, axis=1, kind="stable")[:, : len(shown)]
    headings = (f"{what}_{k + 1}" for k in shown for what in ("community", "share"))
    write_csv(
        path,
        ["source", "target", "probability", "surprise", *headings],
        (
            [
                *nodes,
                f"{p:.6g}",
                f"{bits:.4f}",
                *(cell for k in best for cell in (k, f"{row[k]:.6f}")),
            ]
            for nodes, p, bits, best, row in zip(
                links.nodes, links.probability, links.surprise, order, links.share, strict=True
            )
        ),
    )


def read_pairs(path: Path, dataset: Dataset) -> list[tuple[Any, Any]]:
    """Pairs of nodes that a graph has, one on each line: ids, or indices where it has no ids.

    Raises:
        InputError: if the file cannot be read, or names a node that the graph does not have.
    """
    table, names = read_edge_list(path), set(dataset.item_names)
    pairs = list(zip(table.columns["source"], table.columns["target"], strict=True))
    for line, pair in zip(table.lines, pairs, strict=True):
        for name in pair:
            if name not in names:
                raise InputError(f"{path}, line {line}: the graph has no node '{name}'")
    return pairs if dataset.node_names else [(int(i), int(j)) for i, j in pairs]
