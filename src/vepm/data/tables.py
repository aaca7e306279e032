"""Files of data: where raw ones lie and how missing ones are fetched, and the tables in them."""

import csv
import io
import logging
import os
import re
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vepm.errors import InputError
from vepm.files import write_bytes

logger = logging.getLogger("vepm")

DELIMITERS = (",", ";", "\t")
ENDS = ("source", "target")
WEIGHT = "weight"
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?")
_BETWEEN = re.compile(r"[\s,;]+")
_IN_DICT = re.compile(r"\{.*'weight': *([^,}]+).*\}|\{\}")
_TIMEOUT_SECONDS = 30
# Several times the largest dataset known here, and little enough for a machine's memory.
_LARGEST = 2**30


@dataclass(frozen=True)
class RawFiles:
    """The raw files of one dataset under a PyG root, and where they can be fetched from.

    ``urls`` are the files themselves or one .zip that holds them; there may be none.
    """

    folder: str
    names: tuple[str, ...]
    urls: tuple[str, ...]
    inside: str = "raw"

    def missing(self, root: Path) -> list[Path]:
        """The files that are not there."""
        paths = [root / self.folder / self.inside / name for name in self.names]
        return [path for path in paths if not path.is_file()]

    def ensure(self, root: Path) -> Path:
        """The raw folder, with what is missing fetched if that can be done."""
        missing = self.missing(root)
        if missing and self.urls:
            try:
                for url in self.urls:
                    content, name = _download(url), url.rpartition("/")[2]
                    wanted = {*self.names, "README.txt"}
                    files = _unpack(content, wanted) if name[-4:] == ".zip" else {name: content}
                    for file, inside in files.items():
                        write_bytes(root / self.folder / self.inside / file, inside)
            except (OSError, zipfile.BadZipFile) as error:
                raise InputError(self._explain(missing, f"cannot be fetched ({error})")) from None
            missing = self.missing(root)
        if missing:
            raise InputError(self._explain(missing, "cannot be fetched from anywhere"))
        return root / self.folder / self.inside

    def _explain(self, missing: Sequence[Path], why: str) -> str:
        listed = ", ".join(path.name for path in missing)
        origin = f" (from {self.urls[0].rpartition('/')[0]})" if self.urls else ""
        return (
            f"{self.folder}: raw files are missing and {why}; put {listed} into "
            f"{missing[0].parent}{origin}, or name another data folder with root= or VEPM_DATA"
        )


def _download(url: str) -> bytes:
    if not url.startswith("https://"):
        raise InputError(f"{url}: only https is fetched from; put the files in place by hand")
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310 # nosec B310
        content: bytes = reply.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise InputError(f"{url}: larger than any dataset here; put the files in place by hand")
    return content


def _unpack(content: bytes, wanted: set[str]) -> dict[str, bytes]:
    """The wanted files of an archive by name, whatever folders it claims they belong in."""
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            name = entry.filename.replace("\\", "/").rpartition("/")[2]
            if name not in wanted:
                continue
            if entry.file_size > _LARGEST:
                raise zipfile.BadZipFile(f"{name} claims {entry.file_size} bytes")
            found[name] = archive.read(entry)
    return found


def read_integers(
    path: Path, columns: int = 1, *, delimiter: str | None = ",", header: bool = False
) -> Tensor:
    """A text file of integers [rows], or [rows, columns]; ``delimiter=None`` means blanks."""
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty; fetch it again")
    try:
        values = np.loadtxt(
            path, np.int64, delimiter=delimiter, skiprows=int(header), ndmin=2, encoding="utf-8"
        )
    except (ValueError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise InputError(f"{path}: not integers in columns ({line}); fetch it again") from None
    if values.shape[1] != columns:
        found = f"{values.shape[1]} columns where {columns} belong"
        raise InputError(f"{path}: {found}; fetch it again")
    return torch.from_numpy(values if columns > 1 else values[:, 0])


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with ``~`` replaced by a home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(f"{path}: there is no such home folder; write the path out") from None


def data_root(root: str | os.PathLike[str] | None) -> Path:
    """The data folder: the one given, else VEPM_DATA, else a cache in the user's home."""
    named = root if root is not None else os.environ.get("VEPM_DATA")
    return expanded(named) if named else Path.home() / ".cache" / "vepm" / "data"


@dataclass(frozen=True)
class Table:
    """Cells by column, and what to call rows (their line or name) and columns in messages."""

    source: str
    columns: dict[str, list[Any]]
    lines: Sequence[Any]
    words: tuple[str, str] = ("row", "column")

    def where(self, row: int, column: str) -> str:
        """Names a cell in a message."""
        return f"{self.source}, {self.words[0]} {self.lines[row]}, {self.words[1]} {column}"

    def ids(self) -> dict[str, int]:
        """The row of each id, refusing empty and repeated ones."""
        index: dict[str, int] = {}
        for i, name in enumerate(self.columns["id"]):
            if not name:
                raise InputError(f"{self.where(i, 'id')}: the id is empty; give every row one")
            if name in index:
                there = f"id '{name}' is already on row {self.lines[index[name]]}"
                raise InputError(f"{self.where(i, 'id')}: {there}; give each id once")
            index[name] = i
        return index


def read_text(path: Path) -> str:
    """The text of a plain file in UTF-8."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is no plain file; save what it gives to one")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; create it or correct the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); save the file as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); correct the path") from None


def read_table(path: Path, required: Sequence[str]) -> Table:
    """Read a file with a header line, which names at least the required columns."""
    text = read_text(path)
    header = next((line for line in text.split("\n") if line.strip()), "")
    delimiter = max(DELIMITERS, key=header.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    try:
        numbered = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        at = f"{path}, row {reader.line_num}"
        raise InputError(f"{at}: not CSV ({error}); correct the row") from None
    if not numbered:
        raise InputError(f"{path}: the file is empty; give a header line and rows")
    columns = tuple(cell.strip() for cell in numbered[0][1])
    for name in required:
        if name not in columns:
            raise InputError(
                f"{path}: column '{name}' is missing (found: {', '.join(columns)[:200]}); name it "
                "in the header line, columns separated by commas, semicolons or tabs"
            )
    name, count = Counter(columns).most_common(1)[0]
    if count > 1:
        raise InputError(f"{path}: column '{name}' is there twice; rename one")
    if len(numbered) == 1:
        raise InputError(f"{path}: the file has a header but no rows; add at least one")
    for line, row in numbered[1:]:
        if len(row) != len(columns):
            found = f"{len(row)} cells where the header has {len(columns)}"
            raise InputError(f"{path}, row {line}: {found}; give one cell per column")
    lines, rows = zip(*numbered[1:], strict=True)
    # Semicolons between cells allow decimal commas.
    comma = _DECIMAL_COMMA.fullmatch if delimiter == ";" else lambda cell: None
    cells = (
        [cell.replace(",", ".") if comma(cell) else cell for cell in map(str.strip, column)]
        for column in zip(*rows, strict=True)
    )
    return Table(str(path), dict(zip(columns, cells, strict=True)), list(lines))


def read_edge_list(path: Path) -> Table:
    """Read lines of two ids, separated by blanks, commas, semicolons or tabs.

    A header with ``source`` and ``target`` makes it a table. Lines that start with # or % are
    comments. A number after the two ids, alone or as NetworkX writes it (``{'weight': 2}``), is
    the weight; edges without one have weight 1.
    """
    lines = [line.strip() for line in read_text(path).split("\n")]
    numbered = [(i, line) for i, line in enumerate(lines, 1) if line and line[0] not in "#%"]
    if not numbered:
        raise InputError(f"{path}: the file holds no edges; give one per line, as two ids")
    if set(ENDS) <= set(_BETWEEN.split(numbered[0][1])):
        return read_table(path, ENDS)
    pairs, rest = [], []
    for i, line in numbered:
        cells = _BETWEEN.split(line, maxsplit=2)
        if len(cells) < 2 or not all(cells[:2]):
            raise InputError(f"{path}, row {i}: '{line[:40]}' is no edge; give two ids")
        pairs.append(cells[:2])
        rest.append(cells[2] if len(cells) > 2 else "")
    sources, targets = (list(ends) for ends in zip(*pairs, strict=True))
    columns = {"source": sources, "target": targets}
    if any(rest):
        weights = [_weight_text(words) for words in rest]
        known = None not in weights
        if known:
            said = "%s: the number after the ids of an edge is taken for its weight"
            logger.warning(f"{said}; weights=False (--no-weights) ignores it", path)
        columns[WEIGHT if known else "what follows the ids"] = [word or "" for word in weights]
    return Table(str(path), columns, [i for i, _ in numbered])


def _weight_text(words: str) -> str | None:
    """The weight after the ids of an edge; None if what is there is something else."""
    found = _IN_DICT.fullmatch(words)
    text = (found[1] or "1") if found else words or "1"
    try:
        float(text)
    except ValueError:
        return None
    return text
