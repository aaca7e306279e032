"""Committed benchmark files as one page: ``python -m benchmarks.page results/bench``."""

import base64
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bars import VARIANTS, Report, bars, on_gpu
from benchmarks.figure import NAMES, draw_scaling
from vepm.bench.steps import STEPS
from vepm.errors import InputError

NONE = "**No benchmark files are committed yet.**"


def read_reports(folder: Path) -> dict[str, Report]:
    """The reports in a folder by the names of their files."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def as_page(reports: dict[str, Report]) -> str:
    """All reports as Markdown, the goals first."""
    if not reports:
        return NONE
    parts = ["## Goals", as_bars(reports)]
    for name, report in reports.items():
        parts += [f"## `{name}.json`", _machine(report)]
        if "rows" in report:
            parts += [*_bench(report)]
        elif "cases" in report:
            parts += [_many_runs(report)]
        elif "stages" in report:
            parts += [_stages(report)]
    return "\n\n".join(parts)


def as_bars(reports: dict[str, Report]) -> str:
    """Every goal, what was measured, and whether it is met."""
    found = [
        (bar.what, bar.bar, bar.measured, "yes" if bar.met else "**no**", f"`{name}.json`")
        for name, report in reports.items()
        for bar in bars(report)
    ]
    return _table(("what", "bar", "measured", "met", "file"), found)


def _bench(report: Report) -> Iterator[str]:
    yield f"```shell\n{_command(report)}\n```"
    yield "\n".join(f"- **{name}**: {words}." for name, words in STEPS.items())
    against = {(r["graph"], r["step"], r["against"]): r for r in report["ratios"]}
    rows = []
    for row in report["rows"]:
        place = (row["graph"], f"{row['edges']:,}", row["step"], NAMES[row["method"]])
        if "error" in row:
            rows.append((*place, row["error"], "", "", ""))
            continue
        ratio = against.get((row["graph"], row["step"], row["method"]))
        times, memory = (_inverse(ratio, key) for key in ("time", "memory"))
        peak = f"{row['peak_bytes'] / 2**20:,.0f}" if row["peak_bytes"] else ""
        rows.append((*place, f"{1e3 * row['median']:,.1f}", times, peak, memory))
    head = ("graph", "directed edges", "step", "method", "ms", "over ours", "peak MiB", "over ours")
    yield _table(head, rows)
    if report.get("kernels"):
        yield _kernels(report)
    yield _picture(report)


def _command(report: Report) -> str:
    if on_gpu(report):
        return f"python -m benchmarks.gpu --rounds {report['settings']['rounds']}"
    settings = report["settings"]
    sizes = " ".join(map(str, settings["edges"]))
    methods = dict.fromkeys(row["method"] for row in report["rows"])
    named = f" --datasets PubMed --methods {' '.join(methods)}" if VARIANTS.keys() & methods else ""
    return (
        f"python -m benchmarks.cpu{named} --sizes {sizes} --repeats {settings['repeats']} "
        f"--threads {settings['threads']}"
    )


def _machine(report: Report) -> str:
    machine = report["machine"]
    words = [
        f"{machine['device']}, {machine['cores']} cores, {machine['threads']} threads per process",
        f"Python {machine['python']}, PyTorch {machine['torch']}, "
        f"PyG {machine['torch_geometric']}, commit `{(machine['commit'] or 'unknown')[:10]}`",
    ]
    if "copy_bandwidth" in report:
        words.append(f"a copy reads and writes {report['copy_bandwidth'] / 1e9:,.1f} GB/s")
    if "load" in report:
        load = " and ".join(f"{value:.1f}" for value in report["load"])
        words.append(f"load of the machine at the start and the end: {load}")
    return "; ".join(words) + "."


def _kernels(report: Report) -> str:
    rows = [
        (
            row["what"],
            f"{1e3 * row['seconds']:.2f}",
            f"{row['bytes'] / 1e9:.1f}" if "bytes" in row else "",
            f"{row['of_copy']:.0%}" if "of_copy" in row else "",
        )
        for row in report["kernels"]
    ]
    checks = report["checks"]
    right = sum(row["ok"] for row in checks)
    return (
        "Kernels alone on the large graph, 8 communities of 8 channels. The bytes are the least "
        "that a pass over the edges moves without a cache: for each edge the index of its other "
        "end and the features read there, or the shares read or written; for each row its "
        "pointers, its own features and its sums; four bytes each. Neighbours that are in a cache "
        "make more than 100% possible.\n\n"
        + _table(("kernel", "ms", "GB", "of a copy's bandwidth"), rows)
        + f"\n\n{right} of {len(checks)} checks of kernels and gradients against double precision "
        "were within rounding."
    )


def _many_runs(report: Report) -> str:
    rows = [
        (
            case["dataset"],
            str(case["runs"]),
            f"{case['together']['seconds']:.1f}",
            ", ".join(f"{one['seconds']:.1f}" for one in case["alone"]),
            f"{case['ratio']:.2f}x",
        )
        for case in report["cases"]
    ]
    head = ("dataset", "runs", "at once, s", "alone, s each", "at once over one")
    return "```shell\npython -m benchmarks.many_runs\n```\n\n" + _table(head, rows)


def _stages(report: Report) -> str:
    rows = [
        (row["stage"], f"{row['seconds']:.1f}", f"{row['peak_memory_mib'] / 1024:.2f}")
        for row in report["stages"]
    ]
    words = f"`{report['recipe']}`, test accuracy {report['test_accuracy']:.3f}."
    command = "```shell\npython -m benchmarks.large\n```"
    return f"{command}\n\n{words}\n\n" + _table(("stage", "s", "highest memory so far, GiB"), rows)


def _picture(report: Report) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scaling.png"
        draw_scaling(report, path)
        data = base64.b64encode(path.read_bytes()).decode()
    return f"![Time and memory against the number of edges](data:image/png;base64,{data})"


def _inverse(ratio: dict[str, Any] | None, key: str) -> str:
    return f"{1 / ratio[key]:.2f}x" if ratio and ratio[key] else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Print the page of a folder of reports."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/bench")
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder")
    print(as_page(read_reports(folder)))


if __name__ == "__main__":
    main()
