"""Change the code a little, again and again, and see whether the tests notice.

Each mutant runs in a process forked from one that has loaded everything else, against the tests
that are closest to its module. Run it with ``python -m tools.mutants``.
"""

import argparse
import functools
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from tools.mutants.closeness import closest_tests
from tools.mutants.execute import preload, quick_tests, run_tests
from tools.mutants.sample import allot, mutants_of, packages

WANTED = 0.9
LONGEST_SECONDS = 1.0
"""Tests that take more processor time on unchanged code are left out."""
MOST_SECONDS, MOST_FILES = 5.0, 3
"""Processor time of the tests that a mutant is run against, and the files they come from."""


@functools.cache
def quick_tests_of(path: Path) -> dict[str, float]:
    """The quick tests of a file with their processor time."""
    return quick_tests(path, LONGEST_SECONDS)


def chosen_tests(module: str) -> tuple[dict[str, Path], float]:
    """The closest tests to a module that are not too slow, and their processor time."""
    chosen, total = dict[str, Path](), 0.0
    for path in closest_tests(module)[:MOST_FILES]:
        for name, seconds in quick_tests_of(path).items():
            if total + seconds <= MOST_SECONDS:
                chosen[name], total = path, total + seconds
    return chosen, total


def judge(package: str, sample: int, seed: int) -> dict[str, Any]:
    """How many mutants of a package the tests notice, and which they do not."""
    killed, survivors = 0, []
    for module, count in allot(package, sample, seed).items():
        tests, seconds = chosen_tests(module)
        print(f"{module}: {count}, {len(tests)} tests", file=sys.stderr, flush=True)
        # A mutant that takes much longer than the unchanged code is as good as noticed.
        limit = 3 * seconds + 10
        for mutant in mutants_of(module, count, Random(f"{seed}/{module}")):
            if tests and not run_tests(module, mutant.code, tests, limit):
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
