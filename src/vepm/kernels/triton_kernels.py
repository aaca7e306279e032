"""Triton kernels of the K-community sums: one program per row of the adjacency.

A program keeps the sum of its row in registers and reads every neighbour's features once, so
the bytes moved are those of the inputs and the output, and no message reaches memory. Arguments
that are None are compiled away. Offsets are 64-bit: N times H and E times K pass 2^31. Tiles are
[communities, edges, channels], for Triton lets neighbouring threads run over channels first and
over the first axis next: together they then read one edge's features as one piece of memory.
"""
# Triton reads the parameters' names; their types are the tensors' at the call.
# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def sum_rows(
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
def dot_rows(
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
