"""Reading settings, and writing files whole or not at all."""

import contextlib
import csv
import io
import json
import os
import secrets
import stat
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from vepm.errors import InputError
from vepm.escaping import for_spreadsheet

HALF = ".half"  # ending of files that are not whole yet; a killed process may leave one behind
HALVES = f".*.{'[0-9a-f]' * 8}{HALF}"  # the names of such files, as a pattern
STDOUT = Path("-")
LARGEST_SETTINGS = 2**20
DEEPEST = 64  # tables and lists inside each other, at most


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never half.

    It goes to a temporary file in the same folder, which is flushed to the disk and takes the name
    of the real one. An OSError names the file, if it cannot be written.
    """
    refuse_special(path)
    # The name is known before there is a file: an interrupt may come at any moment after.
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}{HALF}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with half.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            half.unlink()
        if isinstance(error, OSError) and str(error.filename) in ("None", str(half)):
            # Errors of an open file do not say which one it was.
            error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    """:func:`write_bytes` of UTF-8 text; surrogates, which UTF-8 does not have, are escaped."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table, ``-`` to standard output; text that spreadsheets would run is defused."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    quoting = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in (header, *rows):
        cells = [for_spreadsheet(cell) for cell in row]
        # The module quotes what holds its own line ending, but readers end lines at others too.
        odd = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (quoting if odd else writer).writerow(cells)
    if path == STDOUT:
        sys.stdout.write(text.getvalue().encode("utf-8", "backslashreplace").decode())
        # A reader that has gone is noticed here, not when Python ends.
        sys.stdout.flush()
    else:
        write_text(path, text.getvalue())


def parse_toml(text: str) -> dict[str, Any]:
    """:func:`parse_json` of a TOML text."""
    return dict(parse_json(text, tomllib.loads))


def parse_json(text: str | bytes, parse: Callable[[Any], Any] = json.loads) -> Any:
    """The value in a JSON text; ValueError if integers have over 64 bits, or it is too deep."""
    try:
        found = parse(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    values = [(found, 0)]
    for value, level in values:
        if isinstance(value, dict | list):
            # Dotted keys of TOML nest without recursion, which printing the value would need.
            if level == DEEPEST:
                raise ValueError("nested too deeply")
            inside = value.values() if isinstance(value, dict) else value
            values += ((part, level + 1) for part in inside)
        # They cannot be converted to floats; hexadecimal ones can be too long to print.
        elif isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ValueError("an integer of more than 64 bits")
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Read settings from a TOML file, which need not be trusted."""
    try:
        # Reading a pipe might never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("not a file")
        if path.stat().st_size > LARGEST_SETTINGS:
            raise ValueError(f"more than {LARGEST_SETTINGS} bytes; settings take less")
        return parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: not a readable TOML file ({reason})") from None


def refuse_special(path: Path) -> None:
    """Refuse to write to or through a device, a pipe or a link, which may lead elsewhere."""
    with contextlib.suppress(OSError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            kind = "link" if stat.S_ISLNK(mode) else "device or pipe"
            raise InputError(f"{path}: is a {kind}, not a file or folder; choose another place")
