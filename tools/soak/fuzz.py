"""Read damaged files by the thousand: each is accepted, or refused with a one-line error.

Run it with ``python -m tools.soak.fuzz --inputs 100000``.
"""

import argparse
import resource
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tools.record import keep
from tools.soak.targets import Target, targets
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


def fuzz(inputs: int, seed: int = 0, only: str | None = None, *, damaging: bool = True) -> Found:
    """Read so many files, all formats in turn, damaged or intact."""
    found = Found()
    chosen = {name: t for name, t in targets().items() if only in (None, name)}
    with TemporaryDirectory() as place, _limits():
        folders = {
            name: _lay_out(Path(place) / str(i), t) for i, (name, t) in enumerate(chosen.items())
        }
        for number in range(inputs):
            name = list(chosen)[number % len(chosen)]
            case = f"{seed}/{name}/{number}"
            damaged = chosen[name].damage(Random(case)) if damaging else None
            _try(name, chosen[name], folders[name], case, damaged, found)
    return found


def _lay_out(folder: Path, target: Target) -> Path:
    folder.mkdir()
    for name, content in target.files.items():
        (folder / name).write_bytes(content)
    return folder


def _try(
    name: str,
    target: Target,
    folder: Path,
    case: str,
    change: tuple[str, bytes] | None,
    found: Found,
) -> None:
    damaged, content = change or next(iter(target.files.items()))
    (folder / damaged).write_bytes(content)
    started = time.process_time()
    # Processor time: a busy machine must not count as a slow reader.
    signal.setitimer(signal.ITIMER_PROF, LONGEST_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_WAIT_SECONDS)
    try:
        target.read(folder)
        found.taken[name] += 1
    except InputError as error:
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
    (folder / damaged).write_bytes(target.files[damaged])
    extra = {path.name for path in folder.iterdir()} - set(target.files)
    if extra:
        found.wrong.append({"case": case, "why": f"left behind {sorted(extra)}"})
        shutil.rmtree(folder)
        _lay_out(folder, target)


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
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one format")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    started = time.monotonic()
    found = fuzz(chosen.inputs, chosen.seed, chosen.only).summary()
    found |= {"seed": chosen.seed, "seconds": time.monotonic() - started}
    keep(chosen.output, "damaged files, each accepted or refused with a one-line error", found)
    if found["wrong"]:
        raise SystemExit(f"{len(found['wrong'])} inputs went wrong")


if __name__ == "__main__":
    main()
