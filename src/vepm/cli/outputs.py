"""What commands write beside the run folder's own files: CSV tables, and logs for TensorBoard."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.image import imread
from numpy.typing import NDArray

from vepm.data import Dataset
from vepm.data.tables import read_edge_list
from vepm.errors import InputError
from vepm.estimators import Links, Memberships
from vepm.files import write_csv
from vepm.training import Explanation

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

MOST_COMMUNITIES = 3
"""Communities that are written beside each pair of nodes."""
LOGS = ("tensorboard",)
EVENTS = "tensorboard"
"""Folder of the events inside a run folder, with a folder each for the phases and the figures."""
SECONDS_BETWEEN_FLUSHES = 5


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
    """Pairs of nodes that a graph has, one on each line: ids, or indices where it has no ids."""
    table, names = read_edge_list(path), set(dataset.item_names)
    pairs = list(zip(table.columns["source"], table.columns["target"], strict=True))
    for line, pair in zip(table.lines, pairs, strict=True):
        for name in pair:
            if name not in names:
                raise InputError(f"{path}, line {line}: the graph has no node '{name}'")
    return pairs if dataset.node_names else [(int(i), int(j)) for i, j in pairs]


def check_log(name: str) -> None:
    """Refuse a log that is unknown or whose package is missing."""
    if name not in LOGS:
        raise InputError(f"there is no log {name!r}; choose from {', '.join(LOGS)}")
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise InputError(
            "logging needs TensorBoard; install it with: pip install 'vepm[tensorboard]'"
        ) from None


class TensorBoardLog:
    """Listens to a run's epochs and writes each number of each as a scalar.

    Args:
        folder: Folder of the events.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writers: dict[str, SummaryWriter] = {}

    def __call__(self, phase: str, epoch: int, epochs: int, row: dict[str, Any]) -> None:
        """Write an epoch's history row; the signature is that of :data:`vepm.training.Progress`."""
        step = int(row["epoch"])
        for name, value in row.items():
            if name not in ("phase", "epoch"):
                self._writer(phase, step).add_scalar(name, value, step)

    def add_figures(self, folder: Path) -> None:
        """Write every PNG of a folder as an image."""
        for path in sorted(folder.glob("*.png")):
            self._writer("figures", 0).add_image(
                path.stem, imread(path)[..., :3], 0, dataformats="HWC"
            )

    def close(self) -> None:
        """Write what is still to be written."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, part: str, step: int) -> "SummaryWriter":
        from torch.utils.tensorboard import SummaryWriter

        if part not in self._writers:
            # A resumed run repeats the epochs after its checkpoint: what was logged of them goes.
            self._writers[part] = SummaryWriter(
                str(self.folder / part), purge_step=step, flush_secs=SECONDS_BETWEEN_FLUSHES
            )
        return self._writers[part]
