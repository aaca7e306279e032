"""The GPU kernels alone on one graph: their time, and their bandwidth beside that of a copy."""

import functools
import statistics
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vepm.bench import Row, time_call
from vepm.kernels.patterns import Pattern, SortedEdges
from vepm.kernels.triton_pattern import TritonPattern

HEADS, CHANNELS = 8, 8


def time_kernels(edge_index: Tensor, nodes: int, limit: float) -> Iterator[Row]:
    """Every kernel in the shapes of a model of width 64.

    Args:
        edge_index: Edges [2, E] in both directions.
        nodes: Number of nodes.
        limit: Bytes a second that a copy reads and writes.
    """
    edges = edge_index.size(1)
    pattern = TritonPattern(SortedEdges(edge_index[1], edge_index[0], nodes))
    x = torch.randn(nodes, HEADS, CHANNELS, device="cuda")
    count = functools.partial(least_bytes, nodes, edges)
    for communities in (HEADS * CHANNELS, HEADS):
        z = torch.rand(nodes, HEADS, communities // HEADS, device="cuda")
        call = functools.partial(pattern.dot_ends, z, z)
        moved = count((communities, HEADS), (communities,))
        yield _row(f"rates, C = {communities}", call, moved, limit)
    weight = torch.rand(edges, HEADS, device="cuda")
    yield _row(
        "sum by given shares",
        lambda: pattern.sum_neighbours(weight, x),
        count(read=(64, HEADS), out=(64,)),
        limit,
    )
    gather = Pattern(edge_index[1], edge_index[0], nodes)
    seconds = _median(lambda: gather.sum_neighbours(weight, x), repeats=3)
    yield {"what": "sum by given shares, gathered and scattered", "seconds": seconds}


def least_bytes(
    nodes: int,
    edges: int,
    read: tuple[int, ...],
    row: tuple[int, ...] = (),
    out: tuple[int, ...] = (),
) -> int:
    """Fewest bytes that a pass over the edges moves, at four bytes a number.

    Args:
        nodes: Number of nodes.
        edges: Number of edges.
        read: Numbers read or written for each edge, beside the column it points to.
        row: Numbers read for each row, beside where its edges begin and end.
        out: Numbers written for each row.
    """
    return 4 * (edges * (1 + sum(read)) + nodes * (2 + sum(row) + sum(out)))


def _row(what: str, call: Callable[[], object], moved: int, limit: float) -> Row:
    seconds = _median(call, repeats=5)
    return {"what": what, "seconds": seconds, "bytes": moved, "of_copy": moved / seconds / limit}


def _median(call: Callable[[], object], repeats: int) -> float:
    call()
    return statistics.median(time_call(call, "cuda", repeats))
