"""How our time grows with the edges, beside the ratios of ``vepm bench``."""

import math
import statistics
from collections.abc import Sequence

from vepm.bench import Row, ratios
from vepm.bench.steps import STEPS


def conclude(report: Row) -> Row:
    """A report with what follows from its rows."""
    return report | {"ratios": ratios(report["rows"]), "slopes": slopes(report["rows"])}


def slopes(rows: Sequence[Row]) -> dict[str, float]:
    """Exponent of our time in the number of edges, over the generated graphs of each step."""
    found = {}
    for step in STEPS:
        points = {
            math.log(row["edges"]): math.log(row["median"])
            for row in rows
            if (row["step"], row["method"]) == (step, "ours")
            and "median" in row
            and row["graph"].startswith("generated")
        }
        if len(points) > 1:
            found[step] = statistics.linear_regression([*points], [*points.values()]).slope
    return found
