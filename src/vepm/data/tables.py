"""Tables and lists of edges in text files."""

import csv
import io
import logging
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vepm.data.columns import Table
from vepm.data.labels import is_number
from vepm.errors import InputError

logger = logging.getLogger("vepm")

ENDS = ("source", "target")
_BETWEEN = re.compile(r"[\s,;]+")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?")
_IN_DICT = re.compile(r"^(?:\{.*'weight': *([^,}]+).*\}|\{\})$")


def read_file(path: Path) -> bytes:
    """The content of a plain file; reading a pipe might never end."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is no plain file; save what it gives to one")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {str(error.strerror).lower()}; correct the path") from None


def read_text(path: Path) -> str:
    """The text of a plain file in UTF-8, whatever ends its lines."""
    try:
        return io.TextIOWrapper(io.BytesIO(read_file(path)), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); save the file as UTF-8") from None


def read_table(path: Path, required: Sequence[str]) -> Table:
    """Read a file with a header line, which names at least the required columns."""
    text = read_text(path)
    header = next((line for line in text.split("\n") if line.strip()), "")
    delimiter = max((",", ";", "\t"), key=header.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    try:
        numbered = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        wrong = f"row {reader.line_num}: not CSV ({error})"
        raise InputError(f"{path}, {wrong}; correct the row") from None
    if len(numbered) < 2:
        found = "has a header but no rows" if numbered else "is empty"
        raise InputError(f"{path}: the file {found}; give a header line and rows")
    columns = [cell.strip() for cell in numbered[0][1]]
    times = Counter(columns)
    for name in (*required, *columns):
        if times[name] != 1:
            how = "there twice" if name in columns else "missing"
            found = f"column '{name}' is {how} (found: {', '.join(columns)[:200]})"
            remedy = "name each once in the header, separated by commas, semicolons or tabs"
            raise InputError(f"{path}: {found}; {remedy}")
    for line, row in numbered:
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
    return Table(str(path), dict(zip(columns, cells, strict=True)), lines)


def read_edge_list(path: Path) -> Table:
    """Read lines of two ids, or a table if there is a header; # and % start comments.

    A number after the two ids, alone or as NetworkX writes it (``{'weight': 2}``), is the weight;
    edges without one have weight 1.
    """
    lines = [line.strip() for line in read_text(path).split("\n")]
    numbered = [(i, line) for i, line in enumerate(lines, 1) if line and line[0] not in "#%"]
    if not numbered:
        raise InputError(f"{path}: the file holds no edges; give one per line, as two ids")
    if set(ENDS) <= set(_BETWEEN.split(numbered[0][1])):
        return read_table(path, ENDS)
    rows = [[*_BETWEEN.split(line, maxsplit=2), "", ""][:3] for _, line in numbered]
    for (i, line), row in zip(numbered, rows, strict=True):
        if not all(row[:2]):
            raise InputError(f"{path}, row {i}: '{line[:40]}' is no edge; give two ids")
    sources, targets, rest = (list(cells) for cells in zip(*rows, strict=True))
    columns = {"source": sources, "target": targets}
    weights = [_IN_DICT.sub(r"\1", words) or "1" for words in rest]
    if any(rest) and all(map(is_number, weights)):
        columns["weight"] = weights
        said = "%s: the number after the ids of an edge is taken for its weight"
        logger.warning(f"{said}; weights=False (--no-weights) ignores it", path)
    elif any(rest):
        columns["what follows the ids"] = rest
    return Table(str(path), columns, [i for i, _ in numbered])
