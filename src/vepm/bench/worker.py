"""Measures one case; run as a program, in a process of its own so that memory is its own too.

``python -m vepm.bench.worker`` reads a case as JSON from its input and prints the result.
"""

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from vepm.bench.measure import PeakMemory, time_call
from vepm.bench.steps import Sizes, build_step


@dataclass(frozen=True)
class Case:
    """A method's training step on a graph."""

    step: str
    method: str
    device: str = "cpu"
    repeats: int = 10
    budget: float = 20.0
    """Seconds after which repeating stops."""
    threads: int = 0
    """Threads of the CPU; 0 for one per core."""


def save_graph(graph: Data, path: Path) -> None:
    """Keep what a training step reads."""
    fields = ("x", "edge_index", "y", "train_mask")
    torch.save({name: graph[name] for name in fields}, path)


def read_graph(path: str | Path) -> Data:
    """The graph that :func:`save_graph` wrote."""
    return Data(**torch.load(path, weights_only=True))


def measure(load: Callable[[], Data], case: Case, sizes: Sizes) -> dict[str, Any]:
    """Seconds of a step and the memory that data, model and steps take at the most."""
    peak = PeakMemory(case.device)
    graph = load()
    step = build_step(case.method, case.step, graph, sizes, case.device)
    timing = time_call(step, case.device, repeats=case.repeats, warmup=1, budget=case.budget)
    return {**asdict(timing), "peak_bytes": peak.read()}


def main() -> None:
    """Measure the case on the input."""
    request = json.load(sys.stdin)
    if request["case"]["threads"]:
        torch.set_num_threads(request["case"]["threads"])
    load = functools.partial(read_graph, request["graph"])
    result = measure(load, Case(**request["case"]), Sizes(**request["sizes"]))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
