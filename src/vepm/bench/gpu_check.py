"""Checks the GPU kernels against gathers in double precision, then times them.

Run as ``python -m vepm.bench.gpu_check --output gpu.json``. Exits with 1 if a kernel is wrong.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from vepm.bench.gpu_equality import (
    check_gradients,
    check_kernels,
    check_large_offsets,
    random_edges,
)
from vepm.bench.measure import copy_bandwidth, machine, time_call
from vepm.bench.runner import Plan, generate, ratios, run
from vepm.bench.steps import METHODS, STEPS, Sizes
from vepm.bench.worker import Case, measure
from vepm.nn.patterns import GatherPattern, SortedEdges
from vepm.nn.triton_pattern import TritonPattern

LARGE = {"nodes": 2_400_000, "edges": 124_000_000, "heads": 8, "channels": 8}
PUBMED = (19_717, 88_648)
"""Nodes and edges of a graph as large as PubMed, which need not be here."""


def time_kernels(sizes: dict[str, int], limit: float) -> Iterator[dict[str, Any]]:
    """Seconds and bytes of each kernel on a large graph, for several shapes of program."""
    edge_index = random_edges(sizes["nodes"], sizes["edges"])
    nodes, heads, channels = sizes["nodes"], sizes["heads"], sizes["channels"]
    started = time.perf_counter()
    forward = SortedEdges(edge_index[1], edge_index[0], nodes)
    torch.cuda.synchronize()
    yield {"what": "sort the edges", "seconds": time.perf_counter() - started}
    x, y = (torch.randn(nodes, heads, channels, device="cuda") for _ in "xy")
    weight = torch.rand(sizes["edges"], heads, device="cuda")
    for tile, warps in itertools.product((512, 1024, 2048), (1, 2, 4)):
        pattern = TritonPattern(forward, tile=tile, warps=warps)
        calls = {
            "sum": lambda p=pattern: p.sum_neighbours(weight, x),
            "dot": lambda p=pattern: p.dot_ends(x, y),
            "share": lambda p=pattern: p.share_ends(x, y, 1.0),
            "edge sum": lambda p=pattern: p.sum_edges(weight),
        }
        for name, call in calls.items():
            timing = time_call(call, "cuda", repeats=5)
            moved = _bytes(name, sizes)
            rate = moved / timing.median
            what = f"{name} tile={tile} warps={warps}"
            yield {"what": what, "seconds": timing.median, "bytes": moved, "of copy": rate / limit}
    gather = GatherPattern(edge_index[1], edge_index[0], nodes)
    timing = time_call(lambda: gather.sum_neighbours(weight, x), "cuda", repeats=3, warmup=1)
    yield {"what": "sum by gather and scatter", "seconds": timing.median}


def _bytes(kernel: str, sizes: dict[str, int]) -> int:
    """Least bytes: features once per edge, weights, indices and output once each."""
    edges, nodes = sizes["edges"], sizes["nodes"]
    weights, features = 4 * edges * sizes["heads"], 4 * sizes["heads"] * sizes["channels"]
    indices = (4 if kernel == "edge sum" else 8) * edges + 8 * nodes
    if kernel == "edge sum":
        return weights + indices + 4 * nodes * sizes["heads"]
    return edges * features + nodes * features + weights + indices


def time_steps(edges: list[int]) -> dict[str, Any]:
    """Training steps beside PyG's GAT, and ours on the large graph in its full shape."""
    report = run(Plan(device="cuda", edges=edges, repeats=5, budget=5.0), print)
    only_ours: dict[str, tuple[str, ...]] = dict.fromkeys(STEPS, ("ours",))
    large = (LARGE["nodes"], LARGE["edges"])
    for name, shape, methods in [("pubmed-size", PUBMED, METHODS), ("large", large, only_ours)]:
        report["rows"] += _steps_of(name, generate(*shape, "cuda"), methods)
    report["ratios"] = ratios(report["rows"])
    return report


def _steps_of(
    name: str, graph: Data, methods: dict[str, tuple[str, ...]]
) -> Iterator[dict[str, Any]]:
    for step, method in ((s, m) for s, those in methods.items() for m in those):
        found = measure(lambda: graph, Case(step, method, "cuda", budget=5.0), Sizes())
        place = {"graph": name, "nodes": graph.num_nodes, "edges": graph.num_edges}
        yield {**place, "step": step, "method": method, **found}


def main() -> None:
    """Check, time, print the tail of it and write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("gpu.json"))
    parser.add_argument(
        "--edges", type=int, default=LARGE["edges"], help="edges of the timed graph"
    )
    parser.add_argument("--skip-large", action="store_true", help="leave out offsets past 2^31")
    parser.add_argument(
        "--steps", default="", help="time training steps at so many edges, e.g. 1e5,1e6"
    )
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device here")
    torch.manual_seed(0)
    checks = [*check_kernels(), *check_gradients()]
    if not arguments.skip_large:
        checks += check_large_offsets()
    wrong = [row for row in checks if not row["ok"]]
    print(f"{len(checks) - len(wrong)} of {len(checks)} checks passed", flush=True)
    for row in wrong:
        print("WRONG", row["what"], row["error"], flush=True)
    report = {"machine": machine("cuda"), "checks": checks} | _times(arguments.edges)
    arguments.output.write_text(json.dumps(report, indent=1))
    if arguments.steps:
        report["steps"] = time_steps([int(float(n)) for n in arguments.steps.split(",")])
        arguments.output.write_text(json.dumps(report, indent=1, default=str))
        _print_steps(report["steps"])
    sys.exit(1 if wrong else 0)


def _times(edges: int) -> dict[str, Any]:
    limit = copy_bandwidth("cuda")
    print(f"copy: {limit / 1e12:.2f} TB/s")
    sizes = LARGE | {"nodes": LARGE["nodes"] * edges // LARGE["edges"], "edges": edges}
    timings = list(time_kernels(sizes, limit))
    for row in timings:
        share = f"{row['of copy']:.0%} of copy" if "of copy" in row else ""
        print(f"{row['what']:32} {1e3 * row['seconds']:9.2f} ms  {share}", flush=True)
    return {"copy bandwidth": limit, "sizes": sizes, "timings": timings}


def _print_steps(report: dict[str, Any]) -> None:
    for row in report["rows"]:
        numbers = (
            row.get("error")
            or f"{1e3 * row['median']:9.2f} ms {row['peak_bytes'] / 2**30:7.2f} GiB"
        )
        print(f"{row['graph']:20} {row['step']:10} {row['method']:8} {numbers}")
    print("slopes", report["slopes"])


if __name__ == "__main__":
    main()
