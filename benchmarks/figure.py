"""Time and memory against the number of edges, on logarithmic axes."""

import io
import math
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vepm.files import write_bytes

STYLES = {"ours": "o-", "gcn": "d-.", "gat": "s--", "literal": "^:"}
NAMES = {
    "ours": "ours",
    "gcn": "PyG GCN",
    "gat": "PyG GAT",
    "literal": "literal",
    "diagonal": "ours, 16 communities",
    "matrix": "ours, 16 communities, matrix of interactions",
    "posterior": "ours, posterior shares, learned grouping",
}


def draw_scaling(report: dict[str, Any], path: Path) -> None:
    """Write a figure of all generated graphs of a report."""
    rows = [r for r in report["rows"] if r["graph"].startswith("generated") and "median" in r]
    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2)
    for step, method in sorted({(row["step"], row["method"]) for row in rows}):
        chosen = sorted(
            (r for r in rows if (r["step"], r["method"]) == (step, method)),
            key=lambda row: row["edges"],
        )
        label = f"{step}, {NAMES[method]}"
        if method == "ours" and step in report["slopes"]:
            label += f" (slope {report['slopes'][step]:.2f})"
        edges = [row["edges"] for row in chosen]
        seconds = [row["median"] for row in chosen]
        bytes_ = [(row["peak_bytes"] or math.nan) / 2**30 for row in chosen]
        for panel, values in zip(panels, (seconds, bytes_), strict=True):
            panel.loglog(edges, values, STYLES[method], label=label)
    for panel, name in zip(panels, ("seconds per step", "peak memory, GiB"), strict=True):
        panel.set_xlabel("directed edges")
        panel.set_ylabel(name)
    if rows:
        panels[0].legend(fontsize="x-small")
    figure.suptitle(report["machine"]["device"], fontsize="small")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    write_bytes(path, drawn.getvalue())
