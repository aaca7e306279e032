"""Checks the GPU kernels against gathers in double precision, then times them.

Run as ``python -m vepm.bench.gpu_check --output gpu.json``. Exits with 1 if a kernel is wrong.
"""

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vepm.bench.measure import copy_bandwidth, machine, time_call
from vepm.nn import Adjacency, aggregate, edge_dot, edge_shares
from vepm.nn.patterns import GatherPattern, SortedEdges
from vepm.nn.triton_pattern import TritonPattern

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-5, torch.bfloat16: 2e-2}
SHAPES = ((8, 8), (1, 64), (3, 5), (7, 33), (1, 1), (16, 1), (2, 200), (300, 1))
LARGE = {"nodes": 2_400_000, "edges": 124_000_000, "heads": 8, "channels": 8}


def relative_error(ours: Tensor, exact: Tensor) -> float:
    """Distance of two tensors over the size of the second; infinite if anything is not finite."""
    difference = (ours.double() - exact.double()).norm()
    error = float(difference / exact.double().norm().clamp_min(1e-30))
    return error if math.isfinite(error) else math.inf


def random_edges(nodes: int, edges: int) -> Tensor:
    """Unsorted random edges whose targets are a few favourites half of the time."""
    source, target = torch.randint(nodes, (2, edges), device="cuda")
    favourites = torch.randint(max(nodes // 100, 1), (edges,), device="cuda")
    return torch.stack(
        [source, torch.where(torch.rand(edges, device="cuda") < 0.5, favourites, target)]
    )


def star(leaves: int) -> Tensor:
    """Every leaf linked to node 0, both directions."""
    leaf, hub = (
        torch.arange(1, leaves + 1, device="cuda"),
        torch.zeros(leaves, device="cuda").long(),
    )
    return torch.stack([torch.cat([leaf, hub]), torch.cat([hub, leaf])])


def check_kernels() -> Iterator[dict[str, Any]]:
    """Errors of every kernel on graphs, shapes and types that take different paths."""
    nothing = torch.empty(2, 0, dtype=torch.long, device="cuda")
    graphs = {
        "random": (random_edges(5000, 100_000), 5000),
        "sparse": (random_edges(20_000, 30_000), 20_000),
        "empty": (nothing, 10),
        "star": (star(1_000_000), 1_000_001),
    }
    for (name, graph), (heads, channels) in itertools.product(graphs.items(), SHAPES):
        if name == "star" and heads * channels > 64:
            continue
        for dtype in TOLERANCE:
            for kernel, error in _errors(*graph, heads, channels, dtype):
                yield _row(f"{name} K={heads} D={channels} {dtype} {kernel}", error, dtype)


def _row(what: str, error: float, dtype: torch.dtype) -> dict[str, Any]:
    return {"what": what, "error": error, "ok": error <= TOLERANCE[dtype]}


def _errors(
    edge_index: Tensor, nodes: int, heads: int, channels: int, dtype: torch.dtype
) -> Iterator[tuple[str, float]]:
    source, target = edge_index
    ours = TritonPattern(SortedEdges(target, source, nodes))
    exact = GatherPattern(target, source, nodes)
    x, y = (torch.randn(nodes, heads, channels, device="cuda").to(dtype) for _ in "xy")
    weight = torch.randn(source.numel(), heads, device="cuda").to(dtype)
    wide = weight.double()
    a, b = x.double(), y.double()
    yield "sum", relative_error(ours.sum_neighbours(weight, x), exact.sum_neighbours(wide, a))
    yield "plain sum", relative_error(ours.sum_neighbours(None, x), exact.sum_neighbours(None, a))
    yield "edge sum", relative_error(ours.sum_edges(weight), exact.sum_edges(wide))
    yield "dot", relative_error(ours.dot_ends(x, y), exact.dot_ends(a, b))
    yield "share", relative_error(ours.share_ends(x, y, 0.3), exact.share_ends(a, b, 0.3))


def check_gradients() -> Iterator[dict[str, Any]]:
    """Errors of the gradients of everything that plugs into the model."""
    edge_index, nodes = random_edges(3000, 40_000), 3000
    for heads, channels in ((8, 8), (1, 64), (3, 5)):
        leaves = [torch.randn(nodes, heads, channels, device="cuda").double() for _ in "xy"]
        leaves.append(torch.rand(edge_index.size(1), heads, device="cuda").double())
        exact = _gradients(_gathering(edge_index, nodes, heads), leaves)
        for dtype in (torch.float64, torch.float32):
            narrow = [leaf.to(dtype) for leaf in leaves]
            ours = _gradients(Adjacency(edge_index, nodes), narrow)
            for name, our, their in zip(("x", "y", "weight"), ours, exact, strict=True):
                error = relative_error(our, their)
                yield _row(f"gradient to {name} K={heads} D={channels} {dtype}", error, dtype)


def _gathering(edge_index: Tensor, nodes: int, heads: int) -> Adjacency:
    edges = Adjacency(edge_index, nodes)
    for transposed in False, True:
        ends = edge_index if transposed else edge_index.flip(0)
        edges._patterns[heads, transposed] = GatherPattern(ends[0], ends[1], nodes)
    return edges


def _gradients(edges: Adjacency, leaves: list[Tensor]) -> tuple[Tensor, ...]:
    x, y, weight = leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    shares = weight * edge_shares(x, y, edges, 3.0)
    loss = aggregate(x, edges, shares).square().sum() + edge_dot(x, y, edges).square().sum()
    return torch.autograd.grad(loss, leaves)


def check_large_offsets() -> Iterator[dict[str, Any]]:
    """Features and weights with more than 2^31 numbers, looked at where they end."""
    nodes, edges, heads, channels = 34_000_000, 270_000_000, 8, 8
    index = torch.int32
    target = torch.randint(nodes, (edges,), device="cuda", dtype=index).sort().values
    target[-1] = nodes - 1
    source = torch.randint(nodes, (edges,), device="cuda", dtype=index)
    pattern = TritonPattern(SortedEdges(target, source, nodes))
    x = torch.randn(nodes, heads, channels, device="cuda")
    weight = torch.rand(edges, heads, device="cuda")
    few = slice(edges - 1000, edges)
    first = int(target[few][0]) + 1
    seen = target[few] >= first
    sums = torch.zeros(nodes - first, heads, channels, device="cuda").double()
    messages = weight[few][..., None].double() * x[source[few].long()].double()
    sums.index_add_(0, (target[few][seen] - first).long(), messages[seen])
    ours = pattern.sum_neighbours(weight, x)[first:]
    yield _row("sum past 2^31", relative_error(ours, sums), torch.float32)
    exact = (x[target[few].long()].double() * x[source[few].long()].double()).sum(-1)
    error = relative_error(pattern.dot_ends(x, x)[few], exact)
    yield _row("dot past 2^31", error, torch.float32)


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


def main() -> None:
    """Check, time, print the tail of it and write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("gpu.json"))
    parser.add_argument(
        "--edges", type=int, default=LARGE["edges"], help="edges of the timed graph"
    )
    parser.add_argument("--skip-large", action="store_true", help="leave out offsets past 2^31")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device here")
    torch.manual_seed(0)
    checks = [*check_kernels(), *check_gradients()]
    if not arguments.skip_large:
        checks += check_large_offsets()
    wrong = [row for row in checks if not row["ok"]]
    limit = copy_bandwidth("cuda")
    shrink = arguments.edges / LARGE["edges"]
    sizes = LARGE | {"nodes": int(LARGE["nodes"] * shrink), "edges": arguments.edges}
    timings = list(time_kernels(sizes, limit))
    report = {"machine": machine("cuda"), "copy bandwidth": limit, "sizes": sizes}
    report |= {"checks": checks, "timings": timings}
    arguments.output.write_text(json.dumps(report, indent=1))
    print(f"{len(checks) - len(wrong)} of {len(checks)} checks passed")
    for row in wrong:
        print("WRONG", row["what"], row["error"])
    print(f"copy: {limit / 1e12:.2f} TB/s")
    for row in timings:
        share = f"{row['of copy']:.0%} of copy" if "of copy" in row else ""
        print(f"{row['what']:32} {1e3 * row['seconds']:9.2f} ms  {share}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
