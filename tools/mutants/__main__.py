"""Change the code a little, again and again, and see whether the tests notice.

Each mutant runs in a process forked from one that has loaded everything else, against the tests
that are closest to its module. Run it with ``python -m tools.mutants``.
"""

import argparse
import functools
import itertools
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from tools.mutants.closeness import closest_tests
from tools.mutants.execute import preload, run_tests
from tools.mutants.sample import allot, mutants_of, packages, source_of

WANTED = 0.9
LONGEST_SECONDS = 10.0
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


def judge(package: str, sample: int, seed: int) -> dict[str, Any]:
    """How many mutants of a package the tests notice, and which they do not."""
    killed, survivors = 0, []
    for module, count in allot(package, sample, seed).items():
        tests = chosen_tests(module)
        print(f"{module}: {count}", file=sys.stderr, flush=True)
        # A mutant that takes much longer than the unchanged code is as good as noticed.
        limit = 3 * sum(map(seconds_of, tests)) + 10
        for mutant in mutants_of(module, count, Random(f"{seed}/{module}")):
            if tests and not run_tests(module, mutant.code, tests, limit).passed:
                killed += 1
                continue
            line = mutant.code.splitlines()[mutant.line - 1].strip()
            survivors.append({**mutant._asdict(), "code": line})
            print(module, mutant.line, line, file=sys.stderr, flush=True)
    found = {"mutants": killed + len(survivors), "killed": killed, "survivors": survivors}
    return found | {"seed": seed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=10, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", nargs="+", choices=packages(), default=packages())
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    preload()
    total = killed = 0
    for package in chosen.packages:
        found = judge(package, chosen.sample, chosen.seed)
        total, killed = total + found["mutants"], killed + found["killed"]
        # In a process of its own: the record needs the package, which is not yet to be loaded here.
        with ProcessPoolExecutor(1, get_context("fork")) as pool:
            pool.submit(_record, chosen.output, package, found).result()
    if killed < WANTED * total:
        raise SystemExit(f"{killed} of {total} mutants were noticed; at least {WANTED:.0%} should")


def _record(path: Path | None, package: str, found: dict[str, Any]) -> None:
    from tools.record import beside, keep

    record = beside(path, "packages", {package: found})
    keep(path, "mutants of Cosmic Ray that the tests notice", record)


if __name__ == "__main__":
    main()
