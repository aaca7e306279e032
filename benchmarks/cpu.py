"""The steps of ``vepm bench`` on a CPU, with the literal construction among the methods.

Run it with ``python -m benchmarks.cpu --output results/bench/cpu.json``. The methods ``diagonal``
and ``matrix`` are ours with few communities, without and with a matrix of interactions;
``posterior`` is ours with posterior shares and a learned grouping.
"""

import argparse
import functools
import json
from pathlib import Path

from benchmarks.bandwidth import copy_bandwidth
from benchmarks.bars import FEW_COMMUNITIES
from benchmarks.growth import conclude
from benchmarks.literal import LITERAL
from vepm.bench import Plan, run
from vepm.bench.steps import METHODS, Method, ours
from vepm.files import write_text

POSTERIOR = {"posterior": Method(functools.partial(ours, shares="posterior", grouping="learned"))}
METHODS_HERE = (
    METHODS
    | POSTERIOR
    | {
        "literal": LITERAL,
        **{
            kind: Method(
                functools.partial(ours, num_communities=FEW_COMMUNITIES, interactions=kind)
            )
            for kind in ("diagonal", "matrix")
        },
    }
)


def main() -> None:
    """Measure, and write the report after every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="*", default=["Cora", "PubMed"])
    parser.add_argument("--sizes", nargs="*", type=int, default=[100_000, 1_000_000, 10_000_000])
    methods = ["ours", "gcn", "gat", "literal"]
    parser.add_argument("--methods", nargs="*", choices=METHODS_HERE, default=methods)
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
    for report in run(plan, {name: METHODS_HERE[name] for name in given.methods}):
        write_text(given.output, json.dumps(conclude(report) | limit, indent=1))


if __name__ == "__main__":
    main()
