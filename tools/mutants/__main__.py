"""Change the code a little, again and again, and see whether the tests notice.

Each mutant runs in a process forked from one that has loaded everything else, against the tests
that are closest to its module. Run it with ``python -m tools.mutants``.
"""

import argparse
import functools
import itertools
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from tools.mutants.closeness import closest_tests
from tools.mutants.execute import preload, run_tests
from tools.mutants.sample import allot, mutants_of, package_of, source_of

WANTED = 0.85
LONGEST_SECONDS = 20.0
"""Test files that take more processor time on unchanged code are left out."""
MOST_FILES = 3
"""Test files that a mutant is run against."""


@functools.cache
def seconds_of(test: Path) -> float:
    """Processor time of a test file on unchanged code; infinite if it fails or takes too long."""
    outcome = run_tests("vepm", source_of("vepm").read_text(), [test], LONGEST_SECONDS)
    return outcome.seconds if outcome.passed else math.inf


def chosen_tests(module: str) -> list[Path]:
    """The closest test files to a module that are not too slow."""
    quick = (test for test in closest_tests(module) if seconds_of(test) < math.inf)
    return list(itertools.islice(quick, MOST_FILES))


def judge(counts: Mapping[str, int], seed: int, end: float = math.inf) -> dict[str, Any]:
    """How many mutants of each package the tests notice, and which they do not."""
    packages: dict[str, dict[str, Any]] = {}
    for module, count in counts.items():
        tests = chosen_tests(module)
        if time.monotonic() > end:
            break
        print(f"{module}: {count}", file=sys.stderr, flush=True)
        # A mutant that takes much longer than the unchanged code is as good as noticed.
        limit = 3 * sum(map(seconds_of, tests)) + 10
        found = packages.setdefault(
            package_of(module), {"mutants": 0, "killed": 0, "survivors": []}
        )
        for mutant in mutants_of(module, count, Random(f"{seed}/{module}")):
            found["mutants"] += 1
            if tests and not run_tests(module, mutant.code, tests, limit).passed:
                found["killed"] += 1
                continue
            line = mutant.code.splitlines()[mutant.line - 1].strip()
            found["survivors"].append({**mutant._asdict(), "code": line})
            print(module, mutant.line, line, file=sys.stderr, flush=True)
    return {name: packages[name] for name in sorted(packages)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=300, help="mutants of all packages")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one package, such as vepm.nn")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    end = time.monotonic() + chosen.seconds
    preload()
    packages = judge(allot(chosen.sample, chosen.seed, chosen.only), chosen.seed, end)
    total, killed = (
        sum(package[key] for package in packages.values()) for key in ("mutants", "killed")
    )
    from tools.record import keep

    found = {"share_killed": killed / total, "killed": killed, "mutants": total}
    found |= {"seed": chosen.seed, "packages": packages}
    keep(chosen.output, "mutants of Cosmic Ray that the tests notice", found)
    if killed < WANTED * total:
        raise SystemExit(f"{killed} of {total} mutants were noticed; at least {WANTED:.0%} should")


if __name__ == "__main__":
    main()
