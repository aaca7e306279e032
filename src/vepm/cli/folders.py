"""The folders that commands write: their files, their marker and lock, and when they are finished.

A command writes only to a folder that was empty, where it leaves a marker, or that holds what an
earlier version wrote. A run is unfinished while its checkpoint exists; removing the checkpoint is
the last thing that it does.
"""

import contextlib
import fcntl
import os
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vepm import console
from vepm.errors import InputError, LostProcessError
from vepm.files import HALVES, refuse_special, write_text

MARKER = ".vepm"
LOCK = ".lock"
LONGEST_SIGN = 4096
CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.json"
FIGURES = (
    "adjacency",
    "communities",
    "confusion",
    "confusion_by_community",
    "learning_curves",
    "reliability",
    "tsne_communities",
    "tsne_memberships",
)
SECONDS_BETWEEN_TRIES = 0.05
SUBFOLDERS = ("figures", "tensorboard", "cells")
"""Where files are written, beside the folder itself."""


@dataclass(frozen=True)
class Kind:
    """What a command writes to its folder."""

    name: str
    files: tuple[str, ...]
    """Patterns of the files that ``--overwrite`` removes."""
    signs: tuple[Mapping[str, str], ...]
    """Each shows that a folder without a marker is of this kind: files, and what they begin with;
    a subfolder begins with nothing."""

    @property
    def marker(self) -> str:
        """The content of the marker in such a folder."""
        return f"vepm {self.name}\n"

    def wrote(self, folder: Path) -> bool:
        """Whether a folder is of this kind."""
        signs = ({MARKER: self.marker}, *self.signs)
        return any(all(_contains(folder / f, text) for f, text in sign.items()) for sign in signs)

    def found(self, folder: Path) -> list[Path]:
        """The files of a folder that a command of this kind wrote."""
        return [path for pattern in self.files for path in folder.glob(pattern)]


RUN = Kind(
    "run",
    (
        METRICS,
        CHECKPOINT,
        "config.toml",
        "edges.csv",
        "history.csv",
        "links.toml",
        "memberships.csv",
        "missing.csv",
        "model.safetensors",
        "names.json",
        "outputs.safetensors",
        "pairs.csv",
        "predictions.safetensors",
        "report.html",
        *(f"figures/{name}.{kind}" for name in FIGURES for kind in ("png", "svg")),
        "tensorboard/*/events.out.tfevents.*",
    ),
    (
        {CHECKPOINT: '"vepm":"{'},
        {METRICS: '"dataset"', "config.toml": "[model]", "model.safetensors": '"vepm":"{'},
    ),
)


def _contains(path: Path, text: str) -> bool:
    """Whether a text is near the start of a file; only a folder contains the empty one."""
    if not text or not path.is_file():
        return not text and path.is_dir()
    with contextlib.suppress(OSError), path.open("rb") as file:
        return text.encode() in file.read(LONGEST_SIGN)
    return False


def command_line(*, again: bool = False) -> str:
    """What the user typed, or what to type to continue it."""
    typed = [word for word in sys.argv[1:] if not again or word != "--overwrite"]
    return shlex.join(["vepm", *typed])


@contextlib.contextmanager
def only_writer(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a folder, made if need be, against other processes that would write to it too.

    The system releases it when its holder ends, however that ends. Unfinished files that a killed
    holder left are removed. Another process that holds the folder is refused or waited for.
    """
    while (handle := _lock(folder)) is None:
        if not wait:
            raise InputError(
                f"{folder}: another process is writing to this folder; wait for it or choose "
                "another with --output"
            )
        time.sleep(SECONDS_BETWEEN_TRIES)
    try:
        _remove_unfinished(folder)
        yield
    finally:
        # While it is still held: afterwards it may be another's.
        (folder / LOCK).unlink(missing_ok=True)
        os.close(handle)


def _lock(folder: Path) -> int | None:
    """The lock of a folder as an open file; None if another process has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(folder / LOCK, flags, 0o666)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written to ({error.strerror}); choose another with --output"
        ) from None
    with contextlib.ExitStack() as unless_held:
        unless_held.callback(os.close, handle)
        found = os.fstat(handle)
        if found.st_size or not stat.S_ISREG(found.st_mode):
            raise InputError(f"{folder / LOCK}: not a lock of vepm; choose another with --output")
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder may have removed it since it was opened.
            if os.fstat(handle).st_nlink:
                unless_held.pop_all()
                return handle
    return None


def _remove_unfinished(folder: Path) -> None:
    halves = list(folder.glob(HALVES))
    for name in SUBFOLDERS:
        refuse_special(folder / name)
        for place, names, _ in os.walk(folder / name):
            for inside in names:
                refuse_special(Path(place, inside))
            halves += Path(place).glob(HALVES)
    for half in halves:
        half.unlink(missing_ok=True)


@contextlib.contextmanager
def own_folder(folder: Path, kind: Kind, inputs: Iterable[Path] = ()) -> Iterator[None]:
    """Hold a folder to write to, which is empty, absent or of this kind, and leave a marker in it.

    It must not hold an input of the command. Folders made for a command that leaves nothing in
    them are removed again.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        # Neither safetensors nor TensorBoard could open files in it.
        raise InputError(f"{folder}: the name is not UTF-8; choose another with --output") from None
    place = folder.resolve()
    for path in _files(inputs):
        real = path.resolve()
        if place in (real, *real.parents):
            raise InputError(
                f"{folder}: holds the input {path}, which would be lost; choose another "
                "folder with --output"
            )
    foreign = _contents(folder)
    if foreign and not kind.wrote(folder):
        raise InputError(
            f"{folder}: holds {foreign[0]} and is not the folder of a {kind.name}; choose an empty "
            "or new one with --output"
        )
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with only_writer(folder):
            if not kind.wrote(folder):
                write_text(folder / MARKER, kind.marker)
            try:
                yield
            finally:
                if not _contents(folder):
                    (folder / MARKER).unlink(missing_ok=True)
    finally:
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()


def _contents(folder: Path) -> list[str]:
    """What a folder holds beside marker, lock and unfinished files."""
    if not folder.is_dir():
        return []
    unfinished = {path.name for path in folder.glob(HALVES)}
    return sorted({path.name for path in folder.iterdir()} - unfinished - {MARKER, LOCK})


def check_output(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write a file that is no plain one, or that the command reads."""
    refuse_special(path)
    if path.resolve() in (given.resolve() for given in _files(inputs)):
        raise InputError(f"{path}: is an input, which would be lost; choose another with --output")


def _files(inputs: Iterable[Path]) -> Iterator[Path]:
    for given in inputs:
        yield given
        yield from given.glob("*.csv")


def clear(folder: Path, kind: Kind) -> None:
    """Remove what a command wrote to its folder, and nothing else; the marker stays."""
    write_text(folder / MARKER, kind.marker)
    for path in kind.found(folder):
        path.unlink(missing_ok=True)
    for place in (*folder.glob("tensorboard/*"), *(folder / name for name in SUBFOLDERS)):
        with contextlib.suppress(OSError):
            place.rmdir()


@contextlib.contextmanager
def run_folder(folder: Path, overwrite: bool, inputs: Iterable[Path]) -> Iterator[Path]:
    """Hold a folder for one run; yields its checkpoint, which exists until the run is finished."""
    checkpoint = folder / CHECKPOINT
    with own_folder(folder, RUN, inputs):
        if overwrite or not checkpoint.exists():
            if not overwrite and (folder / METRICS).exists():
                raise InputError(
                    f"{folder}: holds a finished run; choose another folder with --output, or "
                    "replace it with --overwrite"
                )
            clear(folder, RUN)
        with how_to_continue(lambda: continuation(folder)):
            yield checkpoint
        checkpoint.unlink(missing_ok=True)


@contextlib.contextmanager
def how_to_continue(advice: Callable[[], str]) -> Iterator[None]:
    """Tell the user how to continue what was interrupted or lost one of its processes."""
    try:
        yield
    except KeyboardInterrupt:
        console.print_note(f"stopped; {advice()}")
        raise
    except LostProcessError as error:
        raise LostProcessError(f"{error}; stopped; {advice()}") from error


def continuation(folder: Path) -> str:
    """How to continue a run."""
    if not (folder / CHECKPOINT).exists():
        return "in the first epoch; nothing is kept"
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        return (
            f"to continue from {folder}, give the same torchrun command again (without --overwrite)"
        )
    return f"to continue from {folder}: {command_line(again=True)}"
