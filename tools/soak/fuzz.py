"""Read damaged files by the thousand: each is accepted, or refused with a one-line error.

Run it with ``python -m tools.soak.fuzz --inputs 100000``, for so many inputs of every kind.
"""

import argparse
import logging
import resource
import shutil
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tools.record import beside, keep
from tools.soak.targets import KINDS, Links, Target, targets
from vepm.cli import UNUSABLE_PATH
from vepm.errors import InputError
from vepm.escaping import LONGEST_LINE, on_one_line

LONGEST_SECONDS = 5
LONGEST_WAIT_SECONDS = 60
MEMORY_BYTES = 2**31
"""Address space that reading may use on top of what the process already has."""


class HangError(BaseException):
    """Reading took too long."""


@dataclass
class Found:
    """What happened to the inputs."""

    taken: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[dict[str, Any]] = field(default_factory=list)
    slowest_seconds: float = 0.0

    def summary(self) -> dict[str, Any]:
        return {
            "inputs": self.taken.total() + self.refused.total() + len(self.wrong),
            "taken": dict(self.taken),
            "refused": dict(self.refused),
            "wrong": self.wrong,
            "slowest_seconds": self.slowest_seconds,
            "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        }


def fuzz(inputs: int, kind: str = "bytes", seed: int = 0, only: str | None = None) -> Found:
    """Read so many damaged inputs of a kind, its targets in turn; a warning counts as wrong."""
    found = Found()
    chosen = {name: t for name, t in targets(kind).items() if only in (None, name)}
    with TemporaryDirectory() as place, _limits(), warnings.catch_warnings(action="error"):
        folders = {name: Path(place) / str(i) for i, name in enumerate(chosen)}
        for name, target in chosen.items():
            target.lay_out(folders[name])
        for number in range(inputs):
            name = list(chosen)[number % len(chosen)]
            _try(name, chosen[name], folders[name], f"{seed}/{name}/{number}", found)
    return found


def _try(name: str, target: Target | Links, folder: Path, case: str, found: Found) -> None:
    try:
        with target.damaged_in(folder, Random(case)):
            _read(name, target, folder, case, found)
    except AssertionError as error:
        found.wrong.append({"case": case, "why": str(error)})
        shutil.rmtree(folder)
        target.lay_out(folder)


def _read(name: str, target: Target | Links, folder: Path, case: str, found: Found) -> None:
    started = time.process_time()
    # Processor time: a busy machine must not count as a slow reader.
    signal.setitimer(signal.ITIMER_PROF, LONGEST_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_WAIT_SECONDS)
    try:
        target.read(folder)
        found.taken[name] += 1
    except (InputError, *UNUSABLE_PATH) as error:
        found.refused[name] += 1
        line = on_one_line(str(error))
        if not line or len(line) > 2 * LONGEST_LINE or not line.isprintable():
            found.wrong.append({"case": case, "why": f"refused with {line!r}"})
    except (Exception, HangError) as error:
        last = traceback.extract_tb(error.__traceback__)[-3:]
        where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(last))
        found.wrong.append(
            {"case": case, "why": f"{type(error).__name__}: {error}"[:300], "at": where}
        )
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    found.slowest_seconds = max(found.slowest_seconds, time.process_time() - started)


@contextmanager
def _limits() -> Iterator[None]:
    """A timer against hangs, and no more memory than reading small files can need."""

    def hang(*_: object) -> None:
        raise HangError(f"over {LONGEST_SECONDS} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + MEMORY_BYTES
    before = {s: signal.signal(s, hang) for s in (signal.SIGALRM, signal.SIGPROF)}
    resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="Of each kind.")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one format")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    logging.getLogger("vepm").setLevel(logging.ERROR)
    wrong = 0
    for kind in chosen.kinds:
        started = time.monotonic()
        found = fuzz(chosen.inputs, kind, chosen.seed, chosen.only).summary()
        wrong += len(found["wrong"])
        fresh = {kind: found | {"seconds": time.monotonic() - started, "seed": chosen.seed}}
        what = "damaged inputs, each accepted or refused with a one-line error"
        keep(chosen.output, what, beside(chosen.output, "kinds", fresh))
    if wrong:
        raise SystemExit(f"{wrong} inputs went wrong")


if __name__ == "__main__":
    main()
