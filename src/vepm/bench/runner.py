"""All cases of a benchmark, one after the other on the same machine, and what they say."""

import functools
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch_geometric.data import Data

from vepm.bench.contenders import Apart, Case, Contender, Here, first_line, race, summarise
from vepm.bench.measure import copy_bandwidth, machine
from vepm.bench.steps import METHODS, Sizes
from vepm.bench.worker import save_graph
from vepm.data import datasets, load, sample_graph
from vepm.errors import InputError

DEGREE = 20
"""Neighbours of a node of a generated graph."""
FEATURES = 100
CLASSES = 8
MOST_NODES = {"pretrain": 20_000, "weights": 6_000, "joint": 6_000}
"""Nodes above which the literal construction, whose cost grows with their square, is left out."""
MOST_EDGES = 5_000_000
"""Edges above which four layers of attention would fill a usual machine's memory, and methods take
their rounds one after the other: side by side, one pushes the other's memory out."""
SMALLEST = 1000

Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    device: str = "cpu"
    datasets: Sequence[str] = ("Cora", "PubMed")
    """Benchmark graphs; those that are not here are left out."""
    edges: Sequence[int] = (100_000, 1_000_000, 10_000_000)
    """Sizes of generated graphs, in directed edges: twice the number of linked pairs."""
    repeats: int = 10
    """Rounds in which every method has a turn."""
    budget: float = 20.0
    """Seconds after which no further round begins."""
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


def generate(nodes: int, edges: int, device: str = "cpu", features: int = FEATURES) -> Data:
    """A graph of eight communities with about so many directed edges."""
    generator = torch.Generator(device).manual_seed(0)
    y = torch.randint(CLASSES, (nodes,), generator=generator, device=device)
    activity = 0.5 + torch.rand(nodes, generator=generator, device=device)
    z = functional.one_hot(y, CLASSES) * activity[:, None]
    rate = edges / float(z.sum(0).double().square().sum())
    edge_index = sample_graph(z, z.new_full((CLASSES,), rate), seed=0)
    x = torch.randn(nodes, features, generator=generator, device=device)
    return Data(x=x, edge_index=edge_index, y=y, train_mask=activity < 0.6).to("cpu")


def run(
    plan: Plan,
    progress: Callable[[str], None] = lambda what: None,
    keep: Callable[[Row], None] = lambda report: None,
) -> Row:
    """Measure every case of a plan; the report as plain values, ready for JSON.

    Args:
        plan: What to measure.
        progress: Told what is measured next.
        keep: Given the report so far after every measurement, so that an end before the end
            does not lose it.
    """
    if plan.threads:
        torch.set_num_threads(plan.threads)
    report: Row = {
        "machine": machine(plan.device),
        "settings": {**asdict(plan), "data_dir": None, "degree": DEGREE, "features": FEATURES},
        "copy_bandwidth": copy_bandwidth(plan.device),
        "load": [os.getloadavg()[0]],
        "rows": [],
    }
    for name, graph in graphs(plan):
        for row in races(name, graph, plan, progress):
            report["rows"].append(row)
            keep(conclude(report))
    report["load"].append(os.getloadavg()[0])
    return conclude(report)


def conclude(report: Row) -> Row:
    """A report with what follows from its rows."""
    return report | {"ratios": ratios(report["rows"]), "slopes": slopes(report["rows"])}


def races(
    name: str,
    graph: Data,
    plan: Plan,
    progress: Callable[[str], None] = lambda what: None,
    methods: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Row]:
    """Every step on a graph, by the methods that can do it at its size or by those given."""
    size = {"graph": name, "nodes": graph.num_nodes, "edges": graph.num_edges}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.pt" if plan.isolate and plan.device == "cpu" else None
        if path is not None:
            save_graph(graph, path)
            graph = Data()
        for step, those in (methods or cases(size["nodes"], size["edges"])).items():
            progress(f"{name}: {step}, {' against '.join(those)}")
            make = functools.partial(_contender, graph, path, step, plan)
            alone = path is not None and size["edges"] > MOST_EDGES
            for contest in ([method] for method in those) if alone else [those]:
                for method, found in _race(contest, make, plan).items():
                    yield {**size, "step": step, "method": method, **found}


def cases(nodes: int, edges: int) -> dict[str, list[str]]:
    """Every step with the methods that can do it at this size."""
    found = {}
    for step, methods in METHODS.items():
        left_out = {"literal"} if nodes > MOST_NODES.get(step, 0) else set()
        left_out |= {"gat"} if step == "joint" and edges > MOST_EDGES else set()
        found[step] = [method for method in methods if method not in left_out]
    return found


def _contender(graph: Data, path: Path | None, step: str, plan: Plan, method: str) -> Contender:
    case = Case(step, method, plan.device, plan.threads)
    if path is None:
        return Here(lambda: graph, case, plan.sizes)
    return Apart(path, case, plan.sizes)


def _race(methods: Sequence[str], make: Callable[[str], Contender], plan: Plan) -> dict[str, Row]:
    found: dict[str, Row] = {}
    ready: dict[str, Contender] = {}
    try:
        for method in methods:
            try:
                ready[method] = make(method)
            except (RuntimeError, torch.OutOfMemoryError) as error:
                found[method] = {"error": first_line(error)}
        for method, turns in race(ready, plan.repeats, plan.budget).items():
            found[method] = {"error": turns} if isinstance(turns, str) else summarise(turns)
    finally:
        for contender in ready.values():
            contender.close()
    return found


def ratios(rows: list[Row]) -> list[Row]:
    """Time and memory of ours over each peer's, step by step and graph by graph."""
    found = {(row["graph"], row["step"], row["method"]): row for row in rows}
    out = []
    for (graph, step, method), row in found.items():
        ours = found.get((graph, step, "ours"))
        if method == "ours" or "error" in row or ours is None or "error" in ours:
            continue
        rounds = zip(ours["rounds"], row["rounds"], strict=False)
        out.append(
            {
                "graph": graph,
                "step": step,
                "against": method,
                "time": statistics.median(mine / theirs for mine, theirs in rounds),
                "best_time": ours["best"] / row["best"],
                "cpu_time": ours["cpu"] / row["cpu"],
                # On a small graph the peak may not rise at all.
                "memory": row["peak_bytes"] and ours["peak_bytes"] / row["peak_bytes"],
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
