"""Train, predict and report over and over in one process: memory and open files must not grow.

Run it with ``python -m tools.soak.repeat --seconds 7200``.
"""

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cli.running import QUICK, succeed
from cli.writing import write_graphs, write_nodes
from tools.record import keep

WARM_UP_SHARE = 0.2
"""Share of the samples, from the start, in which pools and caches may still grow."""
NOISE = 3.0
"""A slope is noise if its effect over the whole time is below this many residual deviations."""
NEGLIGIBLE_MIB = 2.0
"""Growth over the whole time that is too small to tell from the allocator's noise."""


class Sample(NamedTuple):
    seconds: float
    resident_mib: float
    descriptors: int


def measure(started: float) -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        time.monotonic() - started,
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        len(list(Path("/proc/self/fd").iterdir())),
    )


def cycle(folder: Path) -> None:
    """Train, predict and report nodes and graphs, over the files of the last cycle."""
    for name in ("nodes", "graphs"):
        run = folder / f"{name}-run"
        succeed("train", folder / name, "-o", run, "--overwrite", *QUICK)
        succeed("predict", run, folder / name, "-o", folder / f"{name}.csv", "--device", "cpu")
        succeed("report", run)


def repeat(seconds: float, least: int = 3) -> list[Sample]:
    """Run cycles until the time is over, and measure the process after each."""
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_nodes(folder / "nodes")
        write_graphs(folder / "graphs")
        started = time.monotonic()
        while len(samples) < least or time.monotonic() - started < seconds:
            cycle(folder)
            samples.append(measure(started))
            print(*(round(number, 2) for number in samples[-1]), file=sys.stderr, flush=True)
    return samples


def judge(samples: Sequence[Sample]) -> dict[str, Any]:
    """Whether memory grew and descriptors leaked after the warm-up."""
    settled = samples[int(WARM_UP_SHARE * len(samples)) :]
    at, held = np.array([s[:2] for s in settled]).T
    slope, start = np.polyfit(at, held, 1) if len(settled) > 2 else (0.0, held[0])
    spread = float(np.std(held - (start + slope * at)))
    growth = float(slope * (at[-1] - at[0]))
    bound = max(NOISE * spread, NEGLIGIBLE_MIB)
    descriptors = [sample.descriptors for sample in settled]
    return {
        "seconds": samples[-1].seconds,
        "cycles": len(samples),
        "settled_cycles": len(settled),
        "resident_mib_after_warm_up": float(held[0]),
        "resident_mib_at_end": float(held[-1]),
        "slope_mib_per_hour": 3600 * float(slope),
        "growth_mib": growth,
        "residual_deviation_mib": spread,
        "growth_bound_mib": bound,
        "memory_grew": bool(growth > bound),
        "descriptors_after_warm_up": descriptors[0],
        "descriptors_at_end": descriptors[-1],
        "descriptors_leaked": descriptors[-1] > max(descriptors[: len(descriptors) // 2 + 1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    samples = repeat(chosen.seconds)
    found = judge(samples)
    every = max(1, len(samples) // 60)
    found["samples"] = [[round(n, 2) for n in sample] for sample in samples[::every]]
    keep(chosen.output, "repeated train, predict and report in one process", found)
    if found["memory_grew"] or found["descriptors_leaked"]:
        raise SystemExit("memory grew or descriptors leaked")


if __name__ == "__main__":
    main()
