"""Run folders: one writer at a time, nothing left of a run that never began, a way to go on."""

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from vepm import console
from vepm.errors import InputError, LostProcessError
from vepm.files import only_writer

CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.json"
RUN_FILES = (
    METRICS,
    CHECKPOINT,
    "config.toml",
    "edges.csv",
    "history.csv",
    "memberships.csv",
    "model.safetensors",
    "names.json",
    "outputs.safetensors",
    "predictions.safetensors",
    "report.html",
)


def command_line() -> str:
    """What the user typed."""
    return shlex.join(["vepm", *sys.argv[1:]])


@contextlib.contextmanager
def run_folder(folder: Path, overwrite: bool) -> Iterator[Path]:
    """Hold a folder for one run; gives the file in which its progress is kept.

    Folders made for a run that leaves nothing in them are taken away again.

    Raises:
        InputError: if the folder holds a finished run that is not to be replaced, another
            process writes to it, or nobody can.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with only_writer(folder), saying_how_to_go_on(folder):
            if overwrite:
                _clear(folder)
            elif (folder / METRICS).exists():
                raise InputError(
                    f"{folder}: holds a finished run; choose another folder with --output, or "
                    "replace it with --overwrite"
                )
            yield folder / CHECKPOINT
    finally:
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()


def _clear(folder: Path) -> None:
    """Remove what a run wrote, and nothing else."""
    for name in RUN_FILES:
        (folder / name).unlink(missing_ok=True)
    for name in ("figures", "tensorboard"):
        shutil.rmtree(folder / name, ignore_errors=True)


@contextlib.contextmanager
def saying_how_to_go_on(folder: Path) -> Iterator[None]:
    """Tell the user who stops a run, or loses a part of it, what is left of it."""
    try:
        yield
    except KeyboardInterrupt:
        console.print_note(_way_to_go_on(folder))
        raise
    except LostProcessError as error:
        raise LostProcessError(f"{error}; {_way_to_go_on(folder)}") from error


def _way_to_go_on(folder: Path) -> str:
    if (folder / METRICS).exists():
        return f"stopped; the run is finished, write its page with: vepm report {folder}"
    if not (folder / CHECKPOINT).exists():
        return "stopped before the first epoch was done; nothing is kept"
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        return (
            f"stopped; to go on from {folder}, give the same torchrun command again "
            "(without --overwrite)"
        )
    typed = [word for word in sys.argv[1:] if word != "--overwrite"]
    return f"stopped; to go on from {folder}: {shlex.join(['vepm', *typed])}"
