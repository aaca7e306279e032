"""The folders that commands write: their files, their marker and lock, and when they are finished.

A command writes only to a folder that was empty, where it leaves a marker; a lock on the marker
keeps other processes out. A run is unfinished while its checkpoint exists; removing the checkpoint
is the last thing that it does.
"""

import contextlib
import fcntl
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from vepm import console
from vepm.errors import InputError, LostProcessError
from vepm.files import HALVES, refuse_special

MARKER = ".vepm"
CHECKPOINT, CHECKPOINTS = "checkpoint.safetensors", "checkpoint*.safetensors"
METRICS = "metrics.json"
SUBFOLDERS = ("figures", "cells")  # where files are written, beside the folder itself
OTHER = "choose another with --output"


class Kind(NamedTuple):
    """What a command writes to its folder."""

    name: str
    files: tuple[str, ...] = ()  # patterns of the files that ``--overwrite`` removes

    def found(self, folder: Path) -> list[Path]:
        """The files of a folder that a command of this kind wrote."""
        return [path for pattern in self.files for path in folder.glob(pattern)]


RUN = Kind(
    "run",
    (
        *(METRICS, CHECKPOINTS, "config.toml", "edges.csv", "history.csv", "links.toml"),
        *("memberships.csv", "missing.csv", "model.safetensors", "names.json"),
        *("outputs.safetensors", "pairs.csv", "predictions.safetensors", "report.html"),
        *("figures/adjacency.svg", "figures/confusion.svg", "figures/learning_curves.svg"),
        *("figures/reliability.svg", "figures/tsne_communities.svg"),
        "figures/tsne_memberships.svg",
    ),
)


def command_line() -> str:
    """What the user typed."""
    return shlex.join(["vepm", *sys.argv[1:]])


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[FileIO]:
    """Lock a folder, created if needed, against other processes that would write to it.

    Its marker is locked and yielded as an open file, and removed again if it is empty. The system
    releases it when its holder ends, however that ends. Unfinished files that a killed holder left
    are removed.
    """
    marker = folder / MARKER
    refuse_special(marker)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written to ({error.strerror}); {OTHER}") from None
    with FileIO(handle, "r+") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last holder may have removed it since it was opened.
            marker.stat()
        except OSError:
            found = f"{folder}: another process is writing to this folder"
            raise InputError(f"{found}; wait for it or {OTHER}") from None
        halves = list(folder.glob(HALVES))
        for inside in SUBFOLDERS:
            refuse_special(folder / inside)
            for place, names, _ in os.walk(folder / inside):
                for name in names:
                    refuse_special(Path(place, name))
                halves += Path(place).glob(HALVES)
        for half in halves:
            half.unlink(missing_ok=True)
        try:
            yield held
        finally:
            # While it is still locked: afterwards it may belong to another process.
            if not os.fstat(handle).st_size:
                marker.unlink(missing_ok=True)


@contextlib.contextmanager
def own_folder(folder: Path, kind: Kind, inputs: Iterable[Path | None] = ()) -> Iterator[None]:
    """Lock a folder to write to, which is empty, absent or of this kind, and leave a marker in it.

    It must not hold an input of the command. Folders made for a command that leaves nothing in
    them are removed again.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        # safetensors could not open files in it.
        raise InputError(f"{folder}: the name is not UTF-8; {OTHER}") from None
    for path in _files(inputs):
        if path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{folder}: holds the input {path}, which would be lost; {OTHER}")
    marker, mark = folder / MARKER, f"vepm {kind.name}\n".encode()
    ours = marker.is_file() and not marker.is_symlink() and marker.read_bytes() == mark
    if not ours and (foreign := _contents(folder)):
        found = f"{folder}: holds {foreign[0]} and is not the folder of a {kind.name}"
        raise InputError(f"{found}; choose an empty or new one with --output")
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with only_writer(folder) as held:
            if not ours:
                held.truncate(0)
                held.write(mark)
            try:
                yield
            finally:
                if not _contents(folder):
                    held.truncate(0)
    finally:
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()


def _contents(folder: Path) -> list[str]:
    """What a folder holds, without its marker and unfinished files."""
    if not folder.is_dir():
        return []
    unfinished = {path.name for path in folder.glob(HALVES)}
    return sorted({path.name for path in folder.iterdir()} - unfinished - {MARKER})


def _files(inputs: Iterable[Path | None]) -> Iterator[Path]:
    for given in filter(None, inputs):
        yield given
        yield from given.glob("*.csv")


def check_output(path: Path, inputs: Iterable[Path | None]) -> None:
    """Refuse to write a file that is not regular, or that the command reads."""
    refuse_special(path)
    if path.resolve() in (given.resolve() for given in _files(inputs)):
        raise InputError(f"{path}: is an input, which would be lost; {OTHER}")


def clear(folder: Path, kind: Kind) -> None:
    """Remove what a command wrote to its folder, and nothing else; the marker stays."""
    for path in kind.found(folder):
        path.unlink(missing_ok=True)
    for name in SUBFOLDERS:
        with contextlib.suppress(OSError):
            (folder / name).rmdir()


@contextlib.contextmanager
def run_folder(folder: Path, overwrite: bool, inputs: Iterable[Path | None]) -> Iterator[Path]:
    """Lock a folder for one run; yields its checkpoint, which exists until the run is finished."""
    checkpoint = folder / CHECKPOINT
    with own_folder(folder, RUN, inputs):
        if overwrite or not checkpoint.exists():
            if not overwrite and (folder / METRICS).exists():
                found = f"{folder}: holds a finished run"
                raise InputError(f"{found}; {OTHER}, or replace it with --overwrite")
            clear(folder, RUN)
        with how_to_continue(folder):
            yield checkpoint
        for path in sorted(folder.glob(CHECKPOINTS), key=lambda path: path == checkpoint):
            path.unlink()


@contextlib.contextmanager
def how_to_continue(folder: Path) -> Iterator[None]:
    """Tell the user how to continue what was interrupted, told to end, or lost a process."""
    again = " without --overwrite" if "--overwrite" in sys.argv else ""
    advice = f"stopped; to continue from {folder}, give the same command again{again}"
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        console.print_note(advice)
        raise
    except LostProcessError as error:
        raise LostProcessError(f"{error}; {advice}") from error
