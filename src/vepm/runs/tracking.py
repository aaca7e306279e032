"""Follow a run in TensorBoard: every term of every epoch, and the figures at the end."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.image import imread

from vepm.errors import InputError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

LOGS = ("tensorboard",)
EVENTS = "tensorboard"
"""Folder of the events inside a run folder, with a folder each for the phases and the figures."""
SECONDS_BETWEEN_FLUSHES = 5


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
