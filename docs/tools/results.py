"""Result files as one page, and Markdown tables."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
NONE = "**No result files are committed yet.**"


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def tables(folder: str) -> str:
    """Every ``NAME/table.md`` of a folder that `vepm reproduce` wrote, with its figures."""
    found = sorted((ROOT / folder).glob("*/table.md"), key=lambda path: _order(path.parent.name))
    pages = [f"{path.read_text(encoding='utf-8').strip()}\n\n{_figures(path)}" for path in found]
    # A page has one title: what is a page over there is a section here.
    return "\n\n".join(re.sub(r"^(#+) ", r"#\1 ", page, flags=re.M) for page in pages) or NONE


def _figures(path: Path) -> str:
    """What the page puts in for the figures beside a table; the first title says what they show."""
    title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    drawn = sorted(path.parent.glob("*.svg"))
    names = ((svg.relative_to(ROOT).with_suffix(""), svg.stem) for svg in drawn)
    return "\n\n".join(f"<!-- figure: {name} | {title} ({stem}) -->" for name, stem in names)


def table(folder: str) -> str:
    """The numbers of one ``table.md`` alone: the first table in it, without its notes."""
    path = ROOT / folder / "table.md"
    if not path.exists():
        return "*Not measured yet.*"
    found = re.search(r"(^\|.*\n)+", path.read_text(encoding="utf-8"), flags=re.M)
    return found[0] if found else NONE


def _order(name: str) -> tuple[bool, list[int], str]:
    return not name.startswith("table"), [int(n) for n in re.findall(r"\d+", name)], name
