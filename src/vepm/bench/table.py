"""A report as a table for people."""

from typing import Any

from rich.table import Table


def as_table(report: dict[str, Any]) -> Table:
    """Every case with its ratio to ours; above one, ours is faster or smaller."""
    bandwidth = report["copy_bandwidth"] / 1e9
    title = f"{report['machine']['device']}, copies at {bandwidth:.1f} GB/s"
    table = Table(title=title, caption=_caption(report))
    table.add_column("graph")
    for name in ("edges", "step", "method", "ms", "over ours", "peak MiB", "over ours"):
        table.add_column(name, justify="left" if name in ("step", "method") else "right")
    against = {(r["graph"], r["step"], r["against"]): r for r in report["ratios"]}
    for row in report["rows"]:
        place = (row["graph"], f"{row['edges']:,}", row["step"], row["method"])
        if "error" in row:
            table.add_row(*place, row["error"])
            continue
        ratio = against.get((row["graph"], row["step"], row["method"]))
        time, memory = (_inverse(ratio and ratio[k]) for k in ("time", "memory"))
        peak = f"{row['peak_bytes'] / 2**20:,.0f}" if row["peak_bytes"] else ""
        table.add_row(*place, f"{1e3 * row['median']:,.1f}", time, peak, memory)
    return table


def _inverse(ratio: float | None) -> str:
    return f"{1 / ratio:.2f}x" if ratio else ""


def _caption(report: dict[str, Any]) -> str:
    slopes = ", ".join(f"{step} {slope:.2f}" for step, slope in report["slopes"].items())
    return f"our time grows with the edges to the power of: {slopes}" if slopes else ""
