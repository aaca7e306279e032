"""Methods that take turns at their training steps, so that a busy machine slows all alike."""

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch_geometric.data import Data

from vepm.bench.measure import PeakMemory, synchronize
from vepm.bench.steps import Sizes, build_step
from vepm.training.pages import kept_pages

FIRST_STEPS = 3
"""Steps before any is timed: what is built once is built in them."""
TURN = 0.25
"""Seconds that a turn lasts at least; steps shorter than that are repeated within it."""


@dataclass(frozen=True)
class Case:
    """A method's training step."""

    step: str
    method: str
    device: str = "cpu"
    threads: int = 0
    """Threads of the CPU; 0 for one per core."""


@dataclass(frozen=True)
class Turn:
    """Medians over the steps of a turn."""

    seconds: float
    cpu: float
    """Processor's seconds over all threads."""
    peak_bytes: int | None
    """Memory that data, model and steps took at the most so far."""


class Contender(Protocol):
    """A method ready to train on a graph."""

    def turn(self) -> Turn:
        """Train for a while."""

    def close(self) -> None:
        """Let go of everything."""


class Here:
    """A contender in this process.

    On a CPU its peak is the process's; on a GPU it is its own, and is taken before others
    follow. The first steps, which also build what is built once, are not timed. Ours keeps freed
    memory for its next step, as all training of this package does; the others do what their users
    get.
    """

    def __init__(self, load: Callable[[], Data], case: Case, sizes: Sizes) -> None:
        self.device = case.device
        self.memory = PeakMemory(case.device)
        self.kept = contextlib.ExitStack()
        if case.method == "ours":
            self.kept.enter_context(kept_pages())
        self.step = build_step(case.method, case.step, load(), sizes, case.device)
        for _ in range(FIRST_STEPS):
            self.step()
        self.peak = self.memory.read() if case.device == "cuda" else None

    def turn(self) -> Turn:
        """Train for a while."""
        seconds: list[float] = []
        busy: list[float] = []
        while sum(seconds) < TURN:
            synchronize(self.device)
            started, working = time.perf_counter(), time.process_time()
            self.step()
            synchronize(self.device)
            seconds.append(time.perf_counter() - started)
            busy.append(time.process_time() - working)
        peak = self.memory.read() if self.peak is None else self.peak
        return Turn(statistics.median(seconds), statistics.median(busy), peak)

    def close(self) -> None:
        """Free the memory."""
        del self.step
        self.kept.close()
        if self.device == "cuda":
            torch.cuda.empty_cache()


class Apart:
    """A contender in a process of its own, so that its memory is its own too."""

    def __init__(self, graph: Path, case: Case, sizes: Sizes) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vepm.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._say(json.dumps({"graph": str(graph), "case": asdict(case), "sizes": asdict(sizes)}))
        # The first step is done before the next contender begins: two would need more memory.
        self._hear()

    def turn(self) -> Turn:
        """Train for a while, over there."""
        self._say("turn")
        return Turn(**json.loads(self._hear()))

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            print(line, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise RuntimeError(self._last_words()) from None

    def _hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self._last_words())
        return line

    def _last_words(self) -> str:
        words = self.process.communicate()[1].strip().splitlines()[-1:]
        return words[0] if words else f"exit code {self.process.returncode}"


def race(
    contenders: dict[str, Contender], rounds: int, budget: float
) -> dict[str, list[Turn] | str]:
    """Rounds in which everyone has a turn, until the seconds are spent; or why someone fell out.

    There is one round at least.
    """
    results: dict[str, Any] = {name: [] for name in contenders}
    started = time.perf_counter()
    for i in range(rounds):
        if i and time.perf_counter() - started > budget:
            break
        for name, contender in contenders.items():
            if isinstance(results[name], str):
                continue
            try:
                results[name].append(contender.turn())
            except (RuntimeError, torch.OutOfMemoryError) as error:
                results[name] = first_line(error)
    return results


def first_line(error: Exception) -> str:
    """What went wrong, in short."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def summarise(turns: Sequence[Turn]) -> dict[str, Any]:
    """Medians over the rounds, and every round's seconds."""
    return {
        "median": statistics.median(turn.seconds for turn in turns),
        "best": min(turn.seconds for turn in turns),
        "cpu": statistics.median(turn.cpu for turn in turns),
        "rounds": [turn.seconds for turn in turns],
        "peak_bytes": turns[-1].peak_bytes,
    }
