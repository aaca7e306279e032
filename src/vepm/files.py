"""Files appear whole or not at all."""

import csv
import fcntl
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vepm.errors import InputError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never half.

    The content goes to a temporary file in the same folder, is flushed to the disk, and takes
    the name of the real one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
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
        cells = [_plain(cell) for cell in row]
        odd = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (quoting if odd else writer).writerow(cells)
    write_text(path, text.getvalue())


def _plain(cell: Any) -> Any:
    if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        try:
            float(cell)
        except ValueError:
            return "'" + cell
    return cell


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold a folder, made if need be, against other processes that would write to it too.

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
            yield
        finally:
            # While it is still held: afterwards it may be another's.
            lock.unlink(missing_ok=True)
