"""Change the code a little, again and again, and see whether the tests notice.

Each mutant runs in a process forked from one that has loaded everything else, against the tests
that are closest to its module. Run it with ``python -m tools.mutants``.
"""

import argparse
import functools
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from tools.mutants.closeness import HERE, TESTS, closest_tests
from tools.mutants.execute import preload, run_tests
from tools.mutants.sample import Mutant, allot, mutants_of, packages

WANTED = 0.9
EVERY_MODULE = TESTS / "test_values.py"
"""Tests of what holds in every module."""
ROUNDS: tuple[tuple[int, float, float, tuple[Path, ...]], ...] = (
    (3, 1.0, 6.0, ()),
    (6, 3.0, 20.0, (EVERY_MODULE,)),
    (12, 10.0, 60.0, ()),
)
"""Number of closest files, processor time of a test and of all tests, and other files. A mutant
that passes goes to the next."""
UNUSABLE = defaultdict[float, set[str]](set)
"""Tests that fail or take too long on unchanged code as well, by the time of a test."""


def noticed(mutant: Mutant) -> bool:
    """Whether a test of the closest files fails that passes on unchanged code."""
    changed, passed = (mutant.module, mutant.code), set[str]()
    for count, longest, most, others in ROUNDS:
        paths, unusable = (*others, *closest_tests(mutant.module)[:count]), UNUSABLE[longest]
        found = None
        while found is None or found.slow or found.failed is not None:
            skip = passed | unusable
            found = run_tests(paths, longest, most, lambda name: name not in skip, changed)  # noqa: B023
            passed |= found.passed
            # What a test that was cut off leaves behind may make the next one fail.
            if found.slow:
                quick = _passing(found.slow, longest)
                # A mutant that takes much longer than the unchanged code is as good as noticed.
                if quick and quick != _passing(quick, 3 * longest, changed):
                    return True
                unusable |= found.slow
            elif found.failed is not None:
                if _passes_unchanged(found.failed, paths, longest):
                    return True
                unusable.add(found.failed)
    return False


def _passes_unchanged(name: str, paths: Sequence[Path], longest: float) -> bool:
    if not name:
        if run_tests(paths, longest, 0, lambda name: False).failed is None:
            return True
        raise SystemExit(f"the tests of {', '.join(map(str, paths))} cannot be collected")
    # Alone, it also takes the time of what the tests before it had prepared.
    return bool(_passing(frozenset({name}), 10 * longest))


@functools.cache
def _passing(
    names: frozenset[str], longest: float, changed: tuple[str, str] | None = None
) -> frozenset[str]:
    """Which of some tests pass in time."""
    paths = sorted({HERE / name.partition("::")[0] for name in names})
    return run_tests(paths, longest, 10 * longest, names.__contains__, changed).passed


def judge(package: str, sample: int, seed: int) -> dict[str, Any]:
    """How many mutants of a package the tests notice, and which they do not."""
    killed, survivors = 0, []
    for module, count in allot(package, sample, seed).items():
        print(f"{module}: {count}", file=sys.stderr, flush=True)
        for mutant in mutants_of(module, count, Random(f"{seed}/{module}")):
            if noticed(mutant):
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
