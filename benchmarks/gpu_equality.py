"""The GPU kernels against gathers in double precision."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from vepm.kernels.patterns import Pattern, SortedEdges
from vepm.kernels.shares import softmax_shares
from vepm.kernels.triton_pattern import TritonPattern
from vepm.nn import Adjacency, aggregate, edge_dot

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-5, torch.bfloat16: 2e-2}
SHAPES = ((8, 8), (3, 5), (300, 1))


def relative_error(ours: Tensor, exact: Tensor) -> float:
    """Distance of two tensors over the size of the second; infinite if anything is not finite."""
    difference = (ours.double() - exact.double()).norm()
    error = float(difference / exact.double().norm().clamp_min(1e-30))
    return error if math.isfinite(error) else math.inf


def random_edges(nodes: int, edges: int) -> Tensor:
    """Unsorted random edges, half of them into a few nodes of high degree."""
    source, target = torch.randint(nodes, (2, edges), device="cuda")
    hubs = torch.randint(max(nodes // 100, 1), (edges,), device="cuda")
    return torch.stack([source, torch.where(torch.rand(edges, device="cuda") < 0.5, hubs, target)])


def star(leaves: int) -> Tensor:
    """Every leaf linked to node 0, both directions."""
    leaf, hub = (
        torch.arange(1, leaves + 1, device="cuda"),
        torch.zeros(leaves, device="cuda").long(),
    )
    return torch.stack([torch.cat([leaf, hub]), torch.cat([hub, leaf])])


def check_kernels() -> Iterator[dict[str, Any]]:
    """Errors of every kernel on graphs, shapes and types that take different code paths."""
    nothing = torch.empty(2, 0, dtype=torch.long, device="cuda")
    graphs = {
        "random": (random_edges(5000, 100_000), 5000),
        "sparse": (random_edges(20_000, 30_000), 20_000),
        "empty": (nothing, 10),
        "star": (star(100_000), 100_001),
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
    exact = Pattern(target, source, nodes)
    x, y = (torch.randn(nodes, heads, channels, device="cuda").to(dtype) for _ in "xy")
    weight = torch.randn(source.numel(), heads, device="cuda").to(dtype)
    wide = weight.double()
    a, b = x.double(), y.double()
    yield "sum", relative_error(ours.sum_neighbours(weight, x), exact.sum_neighbours(wide, a))
    yield "plain sum", relative_error(ours.sum_neighbours(None, x), exact.sum_neighbours(None, a))
    yield "edge sum", relative_error(ours.sum_edges(weight), exact.sum_edges(wide))
    yield "dot", relative_error(ours.dot_ends(x, y), exact.dot_ends(a, b))


def check_gradients() -> Iterator[dict[str, Any]]:
    """Errors of the gradients of the operations that the model is made of."""
    edge_index, nodes = random_edges(3000, 40_000), 3000
    for heads, channels in ((8, 8), (1, 64)):
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
        edges._patterns[heads, transposed] = Pattern(ends[0], ends[1], nodes)
    return edges


def _gradients(edges: Adjacency, leaves: list[Tensor]) -> tuple[Tensor, ...]:
    x, y, weight = leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    shares = weight * softmax_shares(edge_dot(x, y, edges), 1 / 3.0)
    loss = aggregate(x, edges, shares).square().sum() + edge_dot(x, y, edges).square().sum()
    return torch.autograd.grad(loss, leaves)


def check_large_offsets() -> Iterator[dict[str, Any]]:
    """Features and weights with more than 2^31 entries, checked at their end."""
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
