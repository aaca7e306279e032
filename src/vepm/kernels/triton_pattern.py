"""Triton kernels of the K-community sums, and a graph as they read it.

There is one program per row of the adjacency. It keeps the sum of its row in registers and reads
every neighbour's features once, so the bytes moved are those of the inputs and the output, and no
message reaches memory. Arguments that are None are compiled away. Offsets are 64-bit: N times H and
E times K pass 2^31. Tiles are [communities, edges, channels], for Triton lets neighbouring threads
run over channels first and over the first axis next: together they then read one edge's features as
one piece of memory.
"""

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from vepm.kernels.patterns import Pattern, SortedEdges

LONGEST = 1024  # edges of a row that one program sums; longer rows are cut into such pieces
TILE = 1024  # numbers that one program holds at a time, in single precision
WARPS = 1  # of each program
WIDEST = 128  # channels of an edge that one program holds at a time


# Triton reads the parameters' names; their types are the tensors' at the call.
@triton.jit
def sum_rows(  # type: ignore[no-untyped-def]
    out,
    x,
    weight,
    columns,
    edge_of,
    begins,
    ends,
    rows,
    longest,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    TYPE: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """``out[row, k] = sum over edges e of the row of weight[e, k] * x[column of e, k]``."""
    item = tl.program_id(0)
    row = item.to(tl.int64) if rows is None else tl.load(rows + item).to(tl.int64)
    begin, end = tl.load(begins + item), tl.load(ends + item)
    blocks: tl.constexpr = (CHANNELS + BLOCK_D - 1) // BLOCK_D
    k = tl.program_id(1) // blocks * BLOCK_K + tl.arange(0, BLOCK_K)
    d = tl.program_id(1) % blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    WIDTH: tl.constexpr = HEADS * CHANNELS
    h = k[:, None] * CHANNELS + d[None, :]
    known = (k < HEADS)[:, None] & (d < CHANNELS)[None, :]
    if end - begin <= longest:
        total = tl.zeros((BLOCK_K, BLOCK_E, BLOCK_D), TYPE)
        for first in range(begin, end, BLOCK_E):
            e = first + tl.arange(0, BLOCK_E)
            share = tl.full((BLOCK_K, BLOCK_E), 1, TYPE)
            if weight is not None:
                edge = e if edge_of is None else tl.load(edge_of + e, mask=e < end, other=0)
                place = edge.to(tl.int64)[None, :] * HEADS + k[:, None]
                inside = (e < end)[None, :] & (k < HEADS)[:, None]
                share = tl.load(weight + place, mask=inside, other=0).to(TYPE)
            if x is None:
                total += share[:, :, None]
            else:
                column = e if columns is None else tl.load(columns + e, mask=e < end, other=0)
                place = column.to(tl.int64)[None, :, None] * WIDTH + h[:, None, :]
                inside = (e < end)[None, :, None] & known[:, None, :]
                total += share[:, :, None] * tl.load(x + place, mask=inside, other=0).to(TYPE)
        tl.store(out + row * WIDTH + h, tl.sum(total, axis=1), mask=known)


@triton.jit
def dot_rows(  # type: ignore[no-untyped-def]
    out,
    near,
    far,
    columns,
    edge_of,
    begins,
    ends,
    rows,
    longest,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    TYPE: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """``out[e, k] = near[row of e, k] . far[column of e, k]``."""
    item = tl.program_id(0)
    row = item.to(tl.int64) if rows is None else tl.load(rows + item).to(tl.int64)
    begin, end = tl.load(begins + item), tl.load(ends + item)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    WIDTH: tl.constexpr = HEADS * CHANNELS
    if end - begin <= longest:
        for first in range(begin, end, BLOCK_E):
            e = first + tl.arange(0, BLOCK_E)
            column = tl.load(columns + e, mask=e < end, other=0).to(tl.int64)
            dot = tl.zeros((BLOCK_K, BLOCK_E), TYPE)
            for start in range(0, CHANNELS, BLOCK_D):
                d = start + tl.arange(0, BLOCK_D)
                h = k[:, None] * CHANNELS + d[None, :]
                known = (k < HEADS)[:, None] & (d < CHANNELS)[None, :]
                inside = known[:, None, :] & (e < end)[None, :, None]
                place = column[None, :, None] * WIDTH + h[:, None, :]
                a = tl.load(near + row * WIDTH + h, mask=known, other=0).to(TYPE)
                b = tl.load(far + place, mask=inside, other=0).to(TYPE)
                dot += tl.sum(a[:, None, :] * b, axis=2)
            edge = e if edge_of is None else tl.load(edge_of + e, mask=e < end, other=0)
            place = edge.to(tl.int64)[None, :] * HEADS + k[:, None]
            tl.store(out + place, dot, mask=(e < end)[None, :] & (k < HEADS)[:, None])


class _Pieces(NamedTuple):
    """Long rows cut up, so that a star does not wait for one program."""

    begins: Tensor
    ends: Tensor
    rows: Tensor
    long_rows: Tensor  # the rows that were cut
    pointer: Tensor  # where the pieces of each begin among all pieces, and where the last end


def _cut(pointer: Tensor, longest: int, num_edges: int) -> _Pieces | None:
    if longest >= num_edges:
        return None
    degree = pointer.diff()
    long_rows = (degree > longest).nonzero().flatten()
    if long_rows.numel() == 0:
        return None
    counts = (degree[long_rows] + longest - 1) // longest
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    rows = long_rows.repeat_interleave(counts)
    rank = torch.arange(rows.numel(), device=rows.device) - starts[:-1].repeat_interleave(counts)
    begins = pointer[rows] + rank * longest
    ends = torch.minimum(begins + longest, pointer[rows + 1])
    return _Pieces(begins, ends, rows, long_rows, starts)


class TritonPattern(Pattern):
    """CSR of a graph for any number of communities, with the kernels that run on it.

    The same inputs give the same bits: nothing is added up in an order left to chance.
    """

    def __init__(self, edges: SortedEdges, *, longest: int = LONGEST) -> None:
        self.edges, self.longest = edges, longest
        self.pieces = _cut(edges.pointer, longest, edges.num_edges)
        self.begins, self.ends = edges.pointer[:-1], edges.pointer[1:]
        # Rows much shorter than a tile would leave most of it idle.
        mean = edges.num_edges // max(edges.num_nodes, 1)
        self.most_edges = min(triton.next_power_of_2(mean + 1), 32)

    def sum_neighbours(self, weight: Tensor | None, x: Tensor) -> Tensor:
        """Weighted sums of neighbours [N, K, D]."""
        return self._sum(torch.empty_like(x), x, None if weight is None else weight.contiguous())

    def sum_edges(self, weight: Tensor) -> Tensor:
        """Sums of edge values [N, K]."""
        out = weight.new_empty(self.edges.num_nodes, weight.size(1), 1)
        return self._sum(out, None, weight.contiguous()).squeeze(-1)

    def _sum(self, out: Tensor, x: Tensor | None, weight: Tensor | None) -> Tensor:
        inputs = (x, weight, self.edges.columns, self.edges.order)
        self._launch_sum(out, *inputs, self.begins, self.ends, None, self.longest)
        if self.pieces is not None:
            begins, ends, _, rows, pointer = self.pieces
            kind = torch.promote_types(out.dtype, torch.float32)
            parts = torch.empty(begins.numel(), *out.shape[1:], dtype=kind, device=out.device)
            self._launch_sum(parts, *inputs, begins, ends, None, self.longest)
            alone = (parts, None, None, None)
            self._launch_sum(out, *alone, pointer[:-1], pointer[1:], rows, self.edges.num_edges)
        return out

    def _launch_sum(self, out: Tensor, *arguments: Any) -> None:
        items, (_, heads, channels) = arguments[4].numel(), out.shape
        if out.numel() == 0 or items == 0:
            return
        sizes = _sizes(heads, channels, out.dtype, self.most_edges)
        blocks = triton.cdiv(heads, sizes["BLOCK_K"]) * triton.cdiv(channels, sizes["BLOCK_D"])
        with torch.cuda.device_of(out):
            sum_rows[(items, blocks)](out, *arguments, **sizes, num_warps=WARPS)

    def dot_ends(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Products of the ends of each edge [E, K]."""
        _, heads, channels = rows.shape
        out = rows.new_empty(self.edges.num_edges, heads)
        if out.numel() == 0:
            return out
        sizes = _sizes(heads, channels, out.dtype, self.most_edges)
        blocks = triton.cdiv(heads, sizes["BLOCK_K"])
        inputs = (rows, columns, self.edges.columns, self.edges.order)
        whole = (self.begins, self.ends, None)
        for work in [whole] if self.pieces is None else [whole, self.pieces[:3]]:
            with torch.cuda.device_of(out):
                dot_rows[(work[0].numel(), blocks)](
                    out, *inputs, *work, self.longest, **sizes, num_warps=WARPS
                )
        return out


@functools.cache
def _sizes(heads: int, channels: int, dtype: torch.dtype, most_edges: int) -> dict[str, Any]:
    """Sizes the kernels are compiled for."""
    double = dtype == torch.float64
    tile = TILE // 2 if double else TILE
    block_d = min(triton.next_power_of_2(max(channels, 1)), WIDEST)
    block_k = min(triton.next_power_of_2(heads), WIDEST // block_d)
    return {
        "HEADS": heads,
        "CHANNELS": channels,
        "TYPE": tl.float64 if double else tl.float32,
        "BLOCK_E": max(1, min(tile // (block_k * block_d), most_edges)),
        "BLOCK_K": block_k,
        "BLOCK_D": block_d,
    }
