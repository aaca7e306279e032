"""Files appear whole or not at all."""

import csv
import errno
import fcntl
import io
import os
import secrets
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vepm.errors import InputError
from vepm.escaping import for_spreadsheet

HALF = ".half"
"""Ending of files that are not whole yet; a killed process may leave one behind."""
PLACES = ("", "figures/", "cells/*/*/")
"""Where in a folder of ours files are written."""
LARGEST_SETTINGS = 2**20
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says when a disk, a share of it or a file can hold no more."""


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never half.

    The content goes to a temporary file in the same folder, is flushed to the disk, and takes
    the name of the real one.

    Raises:
        OSError: naming the file, if it cannot be written.
    """
    try:
        _write_whole(path, content)
    except OSError as error:
        # Errors of an open file do not say which one it was.
        error.filename = error.filename or str(path)
        raise


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is known before there is a file: an interrupt may come at any moment after.
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}{HALF}")
    try:
        with half.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        half.chmod(0o644)
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """:func:`write_bytes` of UTF-8 text."""
    write_bytes(path, text.encode())


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table; text that a spreadsheet would run as a formula is defused."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # The module quotes what holds its own line ending, but readers end lines at others too.
    quoting = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in (header, *rows):
        cells = [for_spreadsheet(cell) for cell in row]
        odd = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (quoting if odd else writer).writerow(cells)
    write_text(path, text.getvalue())


def read_toml(path: Path) -> dict[str, Any]:
    """Read settings, from whoever they come.

    Raises:
        InputError: if the file cannot be read, is no TOML, or is larger than settings can be.
    """
    try:
        if path.stat().st_size > LARGEST_SETTINGS:
            raise InputError(f"{path}: more than {LARGEST_SETTINGS} bytes; settings take less")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        # Not UTF-8, not TOML, a number of thousands of digits, lists in lists without end.
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: not a readable TOML file ({reason})") from None


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold a folder, made if need be, against other processes that would write to it too.

    The system lets go of it when its holder ends, however that ends. What a killed holder left
    of unfinished files is removed.

    Raises:
        InputError: if another process holds it, or it cannot be written to.
    """
    lock = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written to ({error.strerror}); choose another with --output"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = os.fstat(file.fileno()).st_nlink > 0
        except OSError:
            held = False
        if not held:
            raise InputError(
                f"{folder}: another process is writing to this folder; wait for it or choose "
                "another with --output"
            )
        try:
            for pattern in PLACES:
                for half in folder.glob(f"{pattern}.*{HALF}"):
                    half.unlink(missing_ok=True)
            yield
        finally:
            # While it is still held: afterwards it may be another's.
            lock.unlink(missing_ok=True)
