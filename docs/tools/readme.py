"""Put the numbers of `results/` into the README: ``python docs/tools/readme.py``."""

import csv
import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from results import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks.page import as_bars, read_reports

SHOWN = {
    "table-1": "Node classification, public splits, each run's epoch chosen on validation",
    "table-2": "Graph classification, ten folds, one epoch for all of them (rule gin)",
}
LEGEND = (
    "Accuracy in per cent, ± standard error, (n) runs; below it the paper's number, where it has "
    "one. ▲ ▼: above or below the paper's by more than our standard error."
)


def headline(path: Path, title: str) -> str:
    """What was run of a table, as Markdown: ours, and the paper's below."""
    with path.open(encoding="utf-8", newline="") as file:
        ours = [line for line in csv.DictReader(file) if line["source"] == "ours"]
    columns = list(dict.fromkeys(line["column"] for line in ours))
    rows: dict[str, dict[str, str]] = {}
    for line in ours:
        # A table's own rule comes before the others it is also shown by.
        rows.setdefault(line["row"], {}).setdefault(line["column"], _square(line))
    lines = [f"| {title} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, squares in rows.items():
        found = (squares.get(column, "") for column in columns)
        lines.append(f"| {name} | {' | '.join(found)} |")
    return "\n".join(lines)


def _square(line: dict[str, str]) -> str:
    mean, error = _rounded(line["mean"]), _rounded(line["standard_error"])
    text = f"{mean} ± {error} ({line['n']}) {line['mark']}".rstrip()
    return text + (f"<br>paper {_rounded(line['paper'])}" if line["paper"] else "")


def _rounded(number: str) -> Decimal:
    return Decimal(number).quantize(Decimal("0.1"), ROUND_HALF_UP)


def main() -> None:
    """Replace what stands between the marks."""
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    found = [
        headline(ROOT / "results" / name / "table.csv", title)
        for name, title in SHOWN.items()
        if (ROOT / "results" / name / "table.csv").exists()
    ]
    text = filled(text, "results", "\n\n".join([LEGEND, *found]))
    text = filled(text, "speed", as_bars(read_reports(ROOT / "results" / "bench")))
    path.write_text(text, encoding="utf-8")


def filled(text: str, name: str, body: str) -> str:
    """A text with another body between the marks of a name."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = text.split(start)
    after = rest.split(end)[1]
    return f"{before}{start}\n{body}\n{end}{after}"


if __name__ == "__main__":
    main()
