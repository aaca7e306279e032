"""CSV files, with the line of every row kept so that messages can name it."""

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vepm.errors import InputError


@dataclass(frozen=True)
class Table:
    """A CSV file: its columns by name, and for each row its line in the file (from 1)."""

    source: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]

    def column(self, name: str) -> list[str]:
        """The cells of a column, without surrounding blanks."""
        position = self.columns.index(name)
        return [row[position].strip() for row in self.rows]

    def where(self, row: int, column: str) -> str:
        """Names a cell in a message."""
        return f"{self.source}, row {self.lines[row]}, column {column}"


def read_table(path: Path, required: Sequence[str]) -> Table:
    """Read a UTF-8, comma-separated file with a header line.

    Args:
        path: the file.
        required: columns that must be there; any others may be.
    """
    numbered = _read_rows(path)
    if not numbered:
        raise InputError(f"{path}: the file is empty; give a header line and rows")
    columns = tuple(cell.strip() for cell in numbered[0][1])
    _check_header(path, columns, required)
    if len(numbered) == 1:
        raise InputError(f"{path}: the file has a header but no rows; add at least one")
    for line, row in numbered[1:]:
        if len(row) != len(columns):
            raise InputError(
                f"{path}, row {line}: {len(row)} cells where the header has {len(columns)}; "
                "give one cell per column"
            )
    lines, rows = [line for line, _ in numbered[1:]], [row for _, row in numbered[1:]]
    return Table(str(path), columns, rows, lines)


def parse_features(table: Table, names: Sequence[str]) -> Tensor:
    """Numeric columns as float32 [rows, len(names)]."""
    place = {name: i for i, name in enumerate(table.columns)}
    wanted = [(name, place[name]) for name in names]
    x = torch.empty(len(table.rows), len(wanted))
    for i, row in enumerate(table.rows):
        numbers = [_parse_number(row[j].strip(), table, i, name) for name, j in wanted]
        x[i] = torch.tensor(numbers, dtype=torch.float64)
    return x


def index_of(table: Table, column: str = "id") -> dict[str, int]:
    """Position of each id of a table, refusing empty and repeated ones."""
    index: dict[str, int] = {}
    for i, name in enumerate(table.column(column)):
        if not name:
            raise InputError(f"{table.where(i, column)}: the id is empty; give every row one")
        if name in index:
            raise InputError(
                f"{table.where(i, column)}: id '{name}' is already on row "
                f"{table.lines[index[name]]}; give each id once"
            )
        index[name] = i
    return index


def _read_rows(path: Path) -> list[tuple[int, list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            return [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; create it or mend the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); save the file as UTF-8") from None
    except csv.Error as error:
        raise InputError(
            f"{path}, row {reader.line_num}: not CSV ({error}); mend the row"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); mend the path") from None


def _check_header(path: Path, columns: Sequence[str], required: Sequence[str]) -> None:
    for name in required:
        if name not in columns:
            raise InputError(
                f"{path}: column '{name}' is missing (found: {', '.join(columns)}); "
                "name it in the header line, columns parted by commas"
            )
    name, count = Counter(columns).most_common(1)[0]
    if count > 1:
        raise InputError(f"{path}: column '{name}' is there twice; rename one")


def _parse_number(cell: str, table: Table, row: int, column: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        what = f"'{cell}' is not a number" if cell else "the cell is empty"
        raise InputError(f"{table.where(row, column)}: {what}; features are numbers") from None
    if not math.isfinite(number) or abs(number) > torch.finfo(torch.float32).max:
        raise InputError(
            f"{table.where(row, column)}: '{cell}' is not finite (as float32); give a finite number"
        )
    return number
