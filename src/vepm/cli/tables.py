"""Results as CSV files."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from vepm.data import Dataset
from vepm.estimators import CommunityDetector
from vepm.files import write_csv


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


def write_communities(folder: Path, dataset: Dataset, detector: CommunityDetector) -> None:
    """Memberships of the nodes and splits of the edges."""
    found = detector.communities(dataset)
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
    edges = detector.edge_partition(dataset)
    write_csv(
        folder / "edges.csv",
        ["source", "target", *(f"share_{k}" for k in parts)],
        (
            [names[i], names[j], *(f"{s:.6f}" for s in shares)]
            for i, j, shares in zip(*edges.edge_index, edges.share, strict=True)
            if i < j
        ),
    )
