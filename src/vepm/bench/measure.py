"""Clocks, memory and the machine: what every benchmark measures with."""

import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vepm.training.machine import commit

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
# Larger than any cache, small beside the memory of any machine this is meant for.
COPY_BYTES = {"cpu": 2**28, "cuda": 2**32}


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, repeated after a warm-up."""

    median: float
    best: float
    cpu: float
    """Median of the processor's seconds over all threads, which others' work delays less."""
    repeats: int


def time_call(
    call: Callable[[], object],
    device: str = "cpu",
    *,
    repeats: int = 10,
    warmup: int = 2,
    budget: float = float("inf"),
) -> Timing:
    """Time a call; stop repeating, but not before once, when the budget of seconds is spent."""
    for _ in range(warmup):
        call()
    seconds: list[float] = []
    busy: list[float] = []
    while len(seconds) < repeats and (not seconds or sum(seconds) < budget):
        synchronize(device)
        started, working = time.perf_counter(), time.process_time()
        call()
        synchronize(device)
        seconds.append(time.perf_counter() - started)
        busy.append(time.process_time() - working)
    return Timing(statistics.median(seconds), min(seconds), statistics.median(busy), len(seconds))


def synchronize(device: str) -> None:
    """Wait for the device's queue to empty, so that a clock tells the truth."""
    if device == "cuda":
        torch.cuda.synchronize()


def copy_bandwidth(device: str = "cpu", num_bytes: int | None = None) -> float:
    """Bytes per second that a copy within memory reads and writes: the limit of sparse sums."""
    count = (num_bytes or COPY_BYTES[device]) // 4
    source = torch.rand(count, device=device)
    target = torch.empty_like(source)
    timing = time_call(lambda: target.copy_(source), device, repeats=10)
    return 2 * 4 * count / timing.best


class PeakMemory:
    """Highest memory in use between now and :meth:`read`, above what was in use before."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
            return
        self.before = _status("VmRSS")
        try:
            CLEAR_REFS.write_text("5")
        except OSError:
            # The high-water mark cannot be reset here: the whole process's is what there is.
            self.before = 0

    def read(self) -> int:
        """Bytes."""
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated() - self.before
        return max(_status("VmHWM") - self.before, 0)


def _status(field: str) -> int:
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def machine(device: str = "cpu") -> dict[str, Any]:
    """What the numbers were measured on and with."""
    import torch_geometric

    name = torch.cuda.get_device_name() if device == "cuda" else _processor()
    return {
        "device": name,
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "commit": commit(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
