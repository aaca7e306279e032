"""Time and peak memory of a training step: VEPM's beside those of PyG's GCN and GAT.

The methods alternate and ratios are taken round by round, so that other work on the machine slows
all of them alike. Each method has a process of its own, and so a peak memory of its own.
"""

import contextlib
import math
import multiprocessing
import operator
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from vepm.bench.steps import METHODS, MOST_EDGES, STEPS, Builder, Method, Step
from vepm.data import load
from vepm.errors import InputError
from vepm.runs.metrics import describe_machine, peak_memory

DEGREE, FEATURES, CLASSES = 20, 100, 8
"""Average degree, features and communities of generated graphs."""
WARMUP = 3  # steps before any is timed: what is built once is built in them
TURN_SECONDS = 0.25  # a shorter step is repeated for so long in each round

Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What to measure, and how."""

    device: str = "cpu"
    datasets: Sequence[str] = ()
    edges: Sequence[int] = ()
    """Sizes of generated graphs in directed edges: twice the number of linked pairs."""
    repeats: int = 10  # rounds in which every method has a turn
    budget: float = 20.0  # seconds after which no further round begins
    threads: int = 0  # threads of the CPU; 0 for one per core
    data_dir: Path | None = None


class PeakMemory:
    """Peak memory between now and :meth:`read`, in bytes above what is in use now."""

    def __init__(self, device: str = "cpu") -> None:
        self.cuda = device == "cuda"
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
            return
        self.before = _status("VmRSS")
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            # The peak cannot be reset here: that of the whole process is all there is.
            self.before = 0

    def read(self) -> int:
        """Bytes."""
        peak = torch.cuda.max_memory_allocated() if self.cuda else _status("VmHWM")
        return max(peak - self.before, 0)


def _status(name: str) -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return int(peak_memory()["peak_memory_mib"] * 2**20)
    return int(status.read_text().split(f"{name}:")[1].split()[0]) * 1024


def time_call(
    call: Callable[[], object], device: str, repeats: float = math.inf, budget: float = math.inf
) -> tuple[list[float], list[float]]:
    """Seconds and processor seconds of each call, until the repeats or the seconds are used up."""
    seconds: list[float] = []
    cpu: list[float] = []
    wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None
    while not seconds or (len(seconds) < repeats and sum(seconds) < budget):
        wait()
        started, working = time.perf_counter(), time.process_time()
        call()
        wait()
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - working)
    return seconds, cpu


_step: Step
_peak: PeakMemory  # what this process trains, and the memory that it takes


def _build(build: Builder, step: str, graph: Path, plan: Plan) -> None:
    global _step, _peak
    if plan.threads:
        torch.set_num_threads(plan.threads)
    _peak = PeakMemory(plan.device)
    _step = build(step, Data(**torch.load(graph, weights_only=True)), plan.device)
    for _ in range(WARMUP):
        _step()


def _train(plan: Plan) -> tuple[float, float, int]:
    """Median time and processor time of a step, and the peak memory so far."""
    seconds, cpu = time_call(_step, plan.device, budget=TURN_SECONDS)
    return statistics.median(seconds), statistics.median(cpu), _peak.read()


def alternate(methods: Mapping[str, Method], step: str, graph: Path, plan: Plan) -> dict[str, Row]:
    """Rounds in which every method trains for a while, each in a process of its own."""
    # A server that has looked for GPUs while importing leaves its forks none to use.
    on_cpu = plan.device == "cpu"
    context = multiprocessing.get_context("forkserver" if on_cpu else "spawn")
    if on_cpu:
        context.set_forkserver_preload([__name__])
    turns: dict[str, list[Any]] = {name: [] for name in methods}
    errors: dict[str, str] = {}
    with contextlib.ExitStack() as ended:
        pools = {n: ended.enter_context(ProcessPoolExecutor(1, context)) for n in methods}

        def wait(name: str, future: Future[Any]) -> None:
            try:
                turns[name].append(future.result())
            except RuntimeError as error:
                errors[name] = (str(error).splitlines() or [type(error).__name__])[0]

        built = {n: pools[n].submit(_build, m.build, step, graph, plan) for n, m in methods.items()}
        for name, future in built.items():
            wait(name, future)
        started = time.perf_counter()
        for i in range(plan.repeats):
            if i == 0 or time.perf_counter() - started < plan.budget:
                for name in [name for name in methods if name not in errors]:
                    wait(name, pools[name].submit(_train, plan))
    return {
        name: {"error": errors[name]} if name in errors else _medians(turns[name][1:])
        for name in methods
    }


def _medians(turns: Sequence[tuple[float, float, int]]) -> Row:
    seconds, cpu, peak = zip(*turns, strict=True)
    times = {"median": statistics.median(seconds), "best": min(seconds)}
    rest = {"cpu": statistics.median(cpu), "rounds": list(seconds), "peak_bytes": peak[-1]}
    return times | rest


def compare(
    name: str, graph: Data, plan: Plan, methods: Mapping[str, Method] = METHODS
) -> Iterator[Row]:
    """A row for each step and each method that the graph is not too large for."""
    nodes, edges = int(graph.num_nodes or 0), graph.num_edges
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.pt"
        torch.save({key: graph[key] for key in ("x", "edge_index", "y", "train_mask")}, path)
        del graph
        for step in STEPS:
            those = {key: m for key, m in methods.items() if m.fits(step, nodes, edges)}
            # Side by side, a large method would push the memory of another out.
            alone = [{key: method} for key, method in those.items()]
            for group in alone if edges > MOST_EDGES else [those]:
                for key, row in alternate(group, step, path, plan).items():
                    size = {"graph": name, "nodes": nodes, "edges": edges}
                    yield {**size, "step": step, "method": key, **row}


def run(plan: Plan, methods: Mapping[str, Method] = METHODS) -> Iterator[Row]:
    """The report of a plan, ready for JSON: what there is of it after each row, last the whole."""
    report: Row = {
        "machine": machine(plan.device),
        "settings": {**asdict(plan), "data_dir": None, "degree": DEGREE, "features": FEATURES},
        "load": [os.getloadavg()[0]],
        "rows": [],
    }
    for name, graph in _graphs(plan):
        for row in compare(name, graph, plan, methods):
            report["rows"].append(row)
            yield report | {"ratios": ratios(report["rows"])}
    report["load"].append(os.getloadavg()[0])
    yield report | {"ratios": ratios(report["rows"])}


def _graphs(plan: Plan) -> Iterator[tuple[str, Data]]:
    loaded = {name: load(name, plan.data_dir) for name in plan.datasets}
    for name, dataset in loaded.items():
        if not dataset.single_graph:
            raise InputError(f"{name} is a set of graphs; bench trains on a single graph")
    for name, dataset in loaded.items():
        yield name, *dataset.graphs
    for edges in plan.edges:
        sizes = f"nodes={edges // DEGREE},edges={edges // 2},features={FEATURES}"
        (graph,) = load(f"planted:{sizes},communities={CLASSES}").graphs
        yield f"generated-{edges}", graph


def machine(device: str) -> Row:
    """What the numbers were measured on and with."""
    found = describe_machine()
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    processor = next(names, platform.machine())
    name = found["gpu"] if device == "cuda" else processor
    return {"device": name, "cores": os.cpu_count(), **found}


def ratios(rows: Sequence[Row]) -> list[Row]:
    """Time and memory of ours over each peer's, step by step and graph by graph."""
    ended = {(row["graph"], row["step"], row["method"]): row for row in rows if "median" in row}
    found = []
    for (graph, step, method), row in ended.items():
        ours = ended.get((graph, step, "ours"))
        if ours is None or method == "ours":
            continue
        times = map(operator.truediv, ours["rounds"], row["rounds"])
        # On a small graph the peak may not rise at all.
        memory = row["peak_bytes"] and ours["peak_bytes"] / row["peak_bytes"]
        place = {"graph": graph, "step": step, "against": method}
        found.append({**place, "time": statistics.median(times), "memory": memory})
    return found
