"""Text from users' data on its way out: harmless in a terminal, a spreadsheet, Markdown."""

import html
import re
from typing import Any

LONGEST_LINE = 1000


def for_terminal(text: str) -> str:
    """Text with control characters, which a terminal would obey, escaped; line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def on_one_line(text: str) -> str:
    """Text for a terminal on a single line, its middle left out where it is very long."""
    line, half = for_terminal(" ".join(text.split())), LONGEST_LINE // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:half]} ... {line[-half:]}"


def for_json(value: Any) -> Any:
    """A value whose JSON every reader accepts: surrogates, which UTF-8 lacks, are escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {for_json(key): for_json(inside) for key, inside in value.items()}
    return [for_json(inside) for inside in value] if isinstance(value, list | tuple) else value


def for_spreadsheet(cell: Any) -> Any:
    """A cell that no spreadsheet reads as a formula: "'=1+1"; numbers stay as they are."""
    if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        try:
            float(cell)
        except ValueError:
            return "'" + cell
    return cell


def for_markdown(text: str) -> str:
    """Text for a line or a table cell of Markdown: no tags, no links, no further cells."""
    line = html.escape(for_terminal(" ".join(text.split())), quote=False)
    return re.sub(r"([\\`*_~#|[\]])", r"\\\1", line)
