"""Time and peak memory of a training step: VEPM's beside those of PyG's GCN and GAT."""

import math
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from vepm.bench.steps import METHODS, STEPS, Builder, Method
from vepm.data import load
from vepm.errors import InputError
from vepm.runs import describe_machine, peak_memory

DEGREE, FEATURES, CLASSES = 20, 100, 8  # of generated graphs; the degree is the average
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
    repeats: int = 10  # rounds of each step
    budget: float = 20.0  # seconds after which no further round begins
    threads: int = 0  # threads of the CPU; 0 for one per core
    data_dir: Path | None = None


def time_call(
    call: Callable[[], object], device: str, repeats: float = math.inf, budget: float = math.inf
) -> list[float]:
    """Seconds of each call, until the repeats or the seconds are used up."""
    seconds: list[float] = []
    wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None
    while not seconds or (len(seconds) < repeats and sum(seconds) < budget):
        wait()
        started = time.perf_counter()
        call()
        wait()
        seconds.append(time.perf_counter() - started)
    return seconds


def measure(build: Builder, step: str, graph: Path, plan: Plan) -> Row:
    """Time a step and take its peak memory, which on a CPU needs a process of its own."""
    if plan.threads:
        torch.set_num_threads(plan.threads)
    peak = "peak_memory_mib"
    if plan.device == "cuda":
        peak = "peak_gpu_memory_mib"
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = peak_memory()[peak]
    train = build(step, Data(**torch.load(graph, weights_only=True)), plan.device)
    for _ in range(WARMUP):
        train()
    rounds: list[float] = []
    started = time.perf_counter()
    for i in range(plan.repeats):
        if i == 0 or time.perf_counter() - started < plan.budget:
            rounds.append(statistics.median(time_call(train, plan.device, budget=TURN_SECONDS)))
    used = round((peak_memory()[peak] - before) * 2**20)
    return {"rounds": rounds, "peak_bytes": used, "median": statistics.median(rounds)}


def attempt(build: Builder, step: str, graph: Path, plan: Plan) -> Row:
    """What :func:`measure` returns, or the error of a step that failed or whose process died."""
    try:
        if plan.device == "cuda":
            return measure(build, step, graph, plan)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        with ProcessPoolExecutor(1, context) as pool:
            return pool.submit(measure, build, step, graph, plan).result()
    except RuntimeError as error:
        return {"error": (str(error).splitlines() or [type(error).__name__])[0]}


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
            for key, method in methods.items():
                if method.fits(step, nodes, edges):
                    size = {"graph": name, "nodes": nodes, "edges": edges}
                    row = attempt(method.build, step, path, plan)
                    yield {**size, "step": step, "method": key, **row}


def run(plan: Plan, methods: Mapping[str, Method] = METHODS) -> Iterator[Row]:
    """The report of a plan, ready for JSON: a partial one after each row, and then the whole."""
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
    if sets := [name for name, dataset in loaded.items() if not dataset.single_graph]:
        raise InputError(f"{sets[0]} is a set of graphs; bench trains on a single graph")
    for name, dataset in loaded.items():
        yield name, *dataset.graphs
    for edges in plan.edges:
        sizes = f"nodes={edges // DEGREE},edges={edges // 2},features={FEATURES}"
        (graph,) = load(f"planted:{sizes},communities={CLASSES}").graphs
        yield f"generated-{edges}", graph


def machine(device: str) -> Row:
    """The hardware and software behind the numbers."""
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
        # On a small graph the peak may not rise at all.
        memory = row["peak_bytes"] and ours["peak_bytes"] / row["peak_bytes"]
        place = {"graph": graph, "step": step, "against": method}
        found.append({**place, "time": ours["median"] / row["median"], "memory": memory})
    return found
