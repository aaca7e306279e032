"""All cases of a benchmark, one after the other on the same machine, and what they say."""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch_geometric.data import Data

from vepm.bench.measure import copy_bandwidth, machine
from vepm.bench.steps import METHODS, Sizes
from vepm.bench.worker import Case, measure, save_graph
from vepm.data import datasets, load, sample_graph
from vepm.errors import InputError

DEGREE = 20
"""Neighbours of a node of a generated graph."""
FEATURES = 100
CLASSES = 8
MOST_LITERAL_NODES = 20_000
"""Nodes above which the literal construction, whose cost grows with their square, is left out."""
SMALLEST = 1000

Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    device: str = "cpu"
    datasets: Sequence[str] = ("Cora", "PubMed")
    """Benchmark graphs; those that are not here are left out."""
    edges: Sequence[int] = (100_000, 1_000_000)
    """Sizes of generated graphs, in directed edges: twice the number of linked pairs."""
    repeats: int = 10
    budget: float = 20.0
    """Seconds after which a case is not repeated any more."""
    threads: int = 0
    """Threads of the CPU; 0 for one per core."""
    isolate: bool = True
    """A process for each case, so that memory is measured alone; never on a GPU."""
    data_dir: Path | None = None
    sizes: Sizes = field(default_factory=Sizes)

    def __post_init__(self) -> None:
        if small := [n for n in self.edges if n < SMALLEST]:
            raise InputError(
                f"sizes: {small[0]} edges are too few to time; give {SMALLEST} or more"
            )


def graphs(plan: Plan) -> Iterator[tuple[str, Data]]:
    """The benchmark graphs that are here, then generated ones."""
    here = {info.name for info in datasets(plan.data_dir) if info.available}
    for name in plan.datasets:
        if name in here:
            yield name, load(name, plan.data_dir).graphs[0]
    for edges in plan.edges:
        yield f"generated-{edges}", generate(edges // DEGREE, edges, plan.device)


def generate(nodes: int, edges: int, device: str = "cpu") -> Data:
    """A graph of eight communities with about so many directed edges."""
    generator = torch.Generator(device).manual_seed(0)
    y = torch.randint(CLASSES, (nodes,), generator=generator, device=device)
    activity = 0.5 + torch.rand(nodes, generator=generator, device=device)
    z = functional.one_hot(y, CLASSES) * activity[:, None]
    rate = edges / float(z.sum(0).double().square().sum())
    edge_index = sample_graph(z, z.new_full((CLASSES,), rate), seed=0)
    x = torch.randn(nodes, FEATURES, generator=generator, device=device)
    return Data(x=x, edge_index=edge_index, y=y, train_mask=activity < 0.6).to("cpu")


def run(plan: Plan, progress: Callable[[str], None] = lambda what: None) -> dict[str, Any]:
    """Measure every case of a plan; the report as plain values, ready for JSON."""
    if plan.threads:
        torch.set_num_threads(plan.threads)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, graph in graphs(plan):
            size = {"graph": name, "nodes": graph.num_nodes, "edges": graph.num_edges}
            path = Path(folder) / "graph.pt" if plan.isolate and plan.device == "cpu" else None
            if path is not None:
                save_graph(graph, path)
                graph = Data()
            for step, method in _cases(size["nodes"]):
                progress(f"{name}: {step}, {method}")
                case = Case(step, method, plan.device, plan.repeats, plan.budget, plan.threads)
                found = _here(graph, case, plan.sizes) if path is None else _apart(path, case, plan)
                rows.append({**size, "step": step, "method": method, **found})
    return {
        "machine": machine(plan.device),
        "settings": {**asdict(plan), "data_dir": None, "degree": DEGREE, "features": FEATURES},
        "copy_bandwidth": copy_bandwidth(plan.device),
        "rows": rows,
        "ratios": ratios(rows),
        "slopes": slopes(rows),
    }


def _cases(nodes: int) -> Iterator[tuple[str, str]]:
    for step, methods in METHODS.items():
        for method in methods:
            if method != "literal" or nodes <= MOST_LITERAL_NODES:
                yield step, method


def _apart(path: Path, case: Case, plan: Plan) -> Row:
    """Measure in a process of its own."""
    request = {"graph": str(path), "case": asdict(case), "sizes": asdict(plan.sizes)}
    done = subprocess.run(
        [sys.executable, "-m", "vepm.bench.worker"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"error": last[0]}
    found: Row = json.loads(done.stdout)
    return found


def _here(graph: Data, case: Case, sizes: Sizes) -> Row:
    """Measure in this process; a CPU's memory then holds what earlier cases left behind."""
    try:
        found = measure(lambda: graph, case, sizes)
        return found if case.device == "cuda" else found | {"peak_bytes": None}
    except torch.OutOfMemoryError:
        return {"error": "out of memory"}
    finally:
        if case.device == "cuda":
            torch.cuda.empty_cache()


def ratios(rows: list[Row]) -> list[Row]:
    """Time and memory of ours over each peer's, step by step and graph by graph."""
    found = {(row["graph"], row["step"], row["method"]): row for row in rows}
    out = []
    for (graph, step, method), row in found.items():
        ours = found[graph, step, "ours"]
        if method == "ours" or "error" in row or "error" in ours:
            continue
        out.append(
            {
                "graph": graph,
                "step": step,
                "against": method,
                "time": ours["median"] / row["median"],
                "best_time": ours["best"] / row["best"],
                "cpu_time": ours["cpu"] / row["cpu"],
                "memory": ours["peak_bytes"] and ours["peak_bytes"] / row["peak_bytes"],
            }
        )
    return out


def slopes(rows: list[Row]) -> dict[str, float]:
    """Exponent of our time in the number of edges, over the generated graphs of each step."""
    out = {}
    for step in METHODS:
        points = [
            (math.log(row["edges"]), math.log(row["median"]))
            for row in rows
            if row["step"] == step
            and row["method"] == "ours"
            and "median" in row
            and row["graph"].startswith("generated")
        ]
        if len(points) > 1:
            out[step] = _slope(points)
    return out


def _slope(points: list[tuple[float, float]]) -> float:
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
