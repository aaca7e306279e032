"""The steps of ``vepm bench`` on a CPU, with the literal construction among the methods.

Run it with ``python -m benchmarks.cpu --output results/bench/cpu.json``.
"""

import argparse
import json
from pathlib import Path

from benchmarks.bandwidth import copy_bandwidth
from benchmarks.growth import conclude
from benchmarks.literal import LITERAL
from vepm.bench import Plan, run
from vepm.bench.steps import METHODS
from vepm.files import write_text


def main() -> None:
    """Measure, and write the report after every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="*", default=["Cora", "PubMed"])
    parser.add_argument("--sizes", nargs="*", type=int, default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    plan = Plan(
        datasets=given.datasets,
        edges=given.sizes,
        repeats=given.repeats,
        threads=given.threads,
        data_dir=given.data_dir,
    )
    limit = {"copy_bandwidth": copy_bandwidth("cpu")}
    for report in run(plan, {**METHODS, "literal": LITERAL}):
        write_text(given.output, json.dumps(conclude(report) | limit, indent=1))


if __name__ == "__main__":
    main()
