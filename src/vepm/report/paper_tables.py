"""Our numbers next to the paper's: tables for terminals, Markdown and spreadsheets."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from vepm.escaping import for_markdown, for_terminal
from vepm.evaluation import Summary
from vepm.files import write_csv, write_text
from vepm.paper.experiments import Metric, Printed
from vepm.paper.plan import PRESET, PRESET_ROWS, Value
from vepm.paper.results import NO_DATA, Results

QUICK = (
    "QUICK: a few epochs on part of the data, to show that everything runs. "
    "The numbers mean nothing."
)
MARKS = "▲ ▼: above or below the paper's by more than our standard error."
SPREAD = "±: standard error of the mean (paper: as printed); sd: standard deviation; n: runs."
SEARCHED = "Ours: settings were searched on other random folds of the same graphs."
FRAME = 3  # characters that the frame of a table takes for every column
CSV_HEADER = (
    "experiment", "row", "column", "dataset", "method", "source", "rule", "mean", "std",
    "standard_error", "n", "splits", "seeds", "unit", "paper", "paper_spread", "mark", "verdict",
    "note", "quick", "preset",
)  # fmt: skip


def _grid(results: Results) -> list[list[str]]:
    """Rows and columns as in the paper, the header first; a square may have several lines."""
    grid = [["", *(label(name, results.columns) for name in results.columns)]]
    for row in results.rows:
        squares = (results.at(row, column) for column in results.columns)
        grid.append([label(row, results.rows), *("\n".join(_lines(one)) for one in squares)])
    return grid


def terminal_tables(results: Results, width: int) -> list[Table]:
    """The table for a terminal; columns that do not fit into its width go to a further table."""
    grid = [[for_terminal(cell) for cell in row] for row in _grid(results)]
    columns = ("\n".join(column).split("\n") for column in zip(*grid, strict=True))
    widths = [max(map(len, lines)) + FRAME for lines in columns]
    parts = [[0]]
    for place in range(1, len(widths)):
        if len(parts[-1]) > 1 and sum(widths[p] for p in (*parts[-1], place)) > width:
            parts.append([0])
        parts[-1].append(place)
    tables = []
    for part in parts:
        header, *rows = ([Text(row[place]) for place in part] for row in grid)
        tables.append(Table(*map(Column, header), show_lines=True))
        for row in rows:
            tables[-1].add_row(*row)
    return tables


def write_tables(results: Results, folder: Path) -> list[Path]:
    """Write ``table.md`` and ``table.csv``; returns their paths."""
    paths = [folder / "table.md", folder / "table.csv"]
    write_text(paths[0], markdown(results))
    write_csv(paths[1], CSV_HEADER, _records(results))
    return paths


def markdown(results: Results) -> str:
    """The table, what to know about it, and every number by every rule."""
    grid = [
        ["<br>".join(map(for_markdown, cell.split("\n"))) for cell in row] for row in _grid(results)
    ]
    parts = [
        f"# {for_markdown(heading(results))}",
        for_markdown(f"{results.experiment.description}."),
        _markdown_table(grid),
        "\n".join(f"- {for_markdown(line)}" for line in footnotes(results)),
    ]
    rules = list(dict.fromkeys(s.rule for v in results.values for s in v.summaries if s.epochs))
    every = [["", "", *rules]]
    for value in results.values:
        if len(value.summaries) > 1:
            found = {summary.rule: number(summary, value.metric) for summary in value.summaries}
            names = label(value.row, results.rows), label(value.column, results.columns)
            every.append([*map(for_markdown, names), *(found.get(rule, "") for rule in rules)])
    if len(every) > 1:
        parts += ["## By every rule", _markdown_table(every)]
    return "\n\n".join(parts) + "\n"


def _markdown_table(rows: list[list[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _lines(value: Value | None) -> list[str]:
    """The content of a square, line by line."""
    if value is None:
        return []
    said = theirs(value.printed, value.metric.exact)
    if value.quoted:
        return [said] if said == "-" else [said, "quoted"]
    paper = "" if value.printed.value is None else f"paper {said}"
    return [line for line in (ours(value), spread(value), paper) if line]


def _records(results: Results) -> Iterator[list[Any]]:
    """One line per square and rule; quoted and missing squares have one without numbers."""
    for value in results.values:
        scale = value.metric.scale
        known = [results.experiment.name, value.row, value.column, value.dataset, value.method]
        paper = [value.printed.value, value.printed.spread]
        end = [value.reason, results.quick, value.preset]
        for place, summary in enumerate(value.summaries):
            spreads = (summary.mean, summary.std, summary.standard_error)
            numbers = [summary.rule, *(f"{scale * x:.6g}" for x in spreads), summary.n]
            numbers += [value.splits, value.seeds, value.metric.unit, *paper]
            marks = [value.mark, value.verdict] if place == 0 else ["", ""]
            yield [*known, "ours", *numbers, *marks, *end]
        if not value.summaries:
            source = "quoted" if value.quoted else "missing"
            yield [*known, source, *[""] * 7, value.metric.unit, *paper, "", "", *end]


def label(name: str, among: Sequence[str]) -> str:
    """What a row or column is called; ours is told from the same one with another preset."""
    others = {f"{name}, {words}" for words in PRESET_ROWS.values()}
    return f"{name}, ours" if others & set(among) else name


def heading(results: Results) -> str:
    """The title, stamped where the numbers mean nothing."""
    return results.experiment.title + (" [QUICK]" if results.quick else "")


def ours(value: Value) -> str:
    """Our mean, its standard error and the mark, or why there is none."""
    main = value.main
    if main is None:
        return f"n/a ({value.reason})" if value.reason == NO_DATA else value.reason
    text = number(main, value.metric)
    if value.verdict:
        text = f"{value.verdict} ({text})"
    planned = len(value.cells)
    partial = f" [{main.n} of {planned} runs]" if main.n < planned else ""
    return f"{text} {value.mark}".rstrip() + partial


def number(summary: Summary, metric: Metric) -> str:
    """A mean with its standard error, if there is one."""
    mean = metric.text(summary.mean)
    return mean if summary.n < 2 else f"{mean} ± {metric.text(summary.standard_error)}"


def spread(value: Value) -> str:
    """Standard deviation and number of runs."""
    main = value.main
    if main is None or value.metric.exact:
        return ""
    return f"n {main.n}" if main.n < 2 else f"sd {value.metric.text(main.std)}, n {main.n}"


def theirs(printed: Printed, exact: bool = False) -> str:
    """The paper's number as it prints it; whole where it is a count."""
    if not isinstance(printed.value, float):
        return printed.value or "-"
    written = str(printed.value)
    if exact or printed.value >= 100:
        written = written.removesuffix(".0")
    return written if printed.spread is None else f"{written} ± {printed.spread}"


def footnotes(results: Results) -> list[str]:
    """What a reader of the numbers must know: rules, runs, spread, marks and notes."""
    lines = [QUICK] if results.quick else []
    measured = [value for value in results.values if value.main is not None]
    varying = [value for value in measured if not value.metric.exact]
    rules = {v.main.rule: v.main.description for v in measured if v.main and v.main.epochs}
    lines += [f"Rule {rule}: {description}." for rule, description in rules.items()]
    if varying:
        kinds = {(v.splits, v.seeds) for v in varying}
        sizes = sorted(f"{_count(n, 'split')} x {_count(m, 'seed')}" for n, m in kinds)
        lines += [f"Runs per number: {', '.join(sizes)}.", SPREAD]
    if any(isinstance(value.printed.value, float) for value in measured):
        lines.append(MARKS)
    if any(value.verdict for value in measured):
        lines.append("≠: our number does not bear out the paper's YES or NO.")
    if any(value.quoted for value in results.values):
        lines.append("quoted: the paper's word; not rerun here.")
    if any(value.pretrained for value in measured):
        lines.append("VEPM's pretraining was transductive: it saw all graphs, without labels.")
    if any(value.pretrained and value.preset == PRESET for value in measured):
        lines.append(SEARCHED)
    commits = sum((value.commits for value in measured), Counter[str | None]())
    if commits:
        counts = [(name or "unknown", _count(n, "run")) for name, n in commits.most_common()]
        lines.append(f"Commits: {', '.join(f'{name[:12]} ({runs})' for name, runs in counts)}.")
    return [*lines, *results.experiment.notes]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
