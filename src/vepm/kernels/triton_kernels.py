"""Triton kernels of the K-community sums: one program per row of the adjacency.

A program keeps the sum of its row in registers and reads every neighbour's features once, so
the bytes moved are those of the inputs and the output, and no message reaches memory. Arguments
that are None are compiled away. Offsets are 64-bit: N times H and E times K pass 2^31. Tiles are
[communities, edges, channels], for Triton lets neighbouring threads run over channels first and
over the first axis next: together they then read one edge's features as one piece of memory.

:func:`share_rows` makes the shares of an edge from the affiliations at both of its ends, uses them
and forgets them, so that nothing of the size of the edges is read or written.
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
    SOFTMAX: tl.constexpr,
):
    """``out[e, k] = near[row of e, k] . far[column of e, k]``, through a softmax if asked."""
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
            if SOFTMAX:
                rate = tl.where((k < HEADS)[:, None], dot, float("-inf"))
                power = tl.exp(rate - tl.max(rate, axis=0)[None, :])
                dot = power / tl.sum(power, axis=0)[None, :]
            edge = e if edge_of is None else tl.load(edge_of + e, mask=e < end, other=0)
            place = edge.to(tl.int64)[None, :] * HEADS + k[:, None]
            tl.store(out + place, dot, mask=(e < end)[None, :] & (k < HEADS)[:, None])


@triton.jit
def share_rows(
    sums,
    rates,
    near,
    far,
    near_value,
    far_value,
    columns,
    begins,
    ends,
    rows,
    longest,
    HEADS: tl.constexpr,
    SEGMENT: tl.constexpr,
    CHANNELS: tl.constexpr,
    TYPE: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EXPONENT: tl.constexpr,
    SMALLEST: tl.constexpr,
):
    """Sums over the edges e of a row, with ``share[e]`` the softmax of ``near[row] . far[e]``,
    or, given an exponent, proportional to that power of it.

    Each item is a row, or a piece of the row that ``rows`` names, with sums of its own.
    ``sums[row, k]`` adds up ``share[e, k] * far_value[column of e, k]``, where values that are
    None count as ones. ``rates[row, k]`` adds up ``far[column of e, k]`` times the gradient that
    reaches the rate of e in k when the gradient of its share is
    ``near_value[row, k] . far_value[column of e, k]``.
    """
    item = tl.program_id(0)
    row = item.to(tl.int64) if rows is None else tl.load(rows + item).to(tl.int64)
    out_row = item.to(tl.int64)
    begin, end = tl.load(begins + item), tl.load(ends + item)
    k = tl.arange(0, BLOCK_K)
    s, d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    at, value_at = k[:, None] * SEGMENT + s, k[:, None] * CHANNELS + d
    known = (k < HEADS)[:, None] & (s < SEGMENT)[None, :]
    value_known = (k < HEADS)[:, None] & (d < CHANNELS)[None, :]
    WIDTH: tl.constexpr = HEADS * SEGMENT
    VALUE_WIDTH: tl.constexpr = HEADS * CHANNELS
    if end - begin <= longest:
        here = tl.load(near + row * WIDTH + at, mask=known, other=0).to(TYPE)
        if near_value is not None:
            value_begin = near_value + row * VALUE_WIDTH + value_at
            value_here = tl.load(value_begin, mask=value_known, other=0).to(TYPE)
        total = tl.zeros((BLOCK_K, BLOCK_E, BLOCK_D), TYPE)
        slope = tl.zeros((BLOCK_K, BLOCK_E, BLOCK_S), TYPE)
        for first in range(begin, end, BLOCK_E):
            e = first + tl.arange(0, BLOCK_E)
            column = tl.load(columns + e, mask=e < end, other=0).to(tl.int64)
            inside = (e < end)[None, :, None] & known[:, None, :]
            place = far + column[None, :, None] * WIDTH + at[:, None, :]
            there = tl.load(place, mask=inside, other=0).to(TYPE)
            value = tl.full((BLOCK_K, BLOCK_E, BLOCK_D), 1, TYPE)
            if far_value is not None:
                inside = (e < end)[None, :, None] & value_known[:, None, :]
                value_place = column[None, :, None] * VALUE_WIDTH + value_at[:, None, :]
                value = tl.load(far_value + value_place, mask=inside, other=0).to(TYPE)
            rate = tl.sum(here[:, None, :] * there, axis=2)
            if EXPONENT is not None:
                known_rate = rate + SMALLEST
                rate = EXPONENT * tl.log(known_rate)
            rate = tl.where((k < HEADS)[:, None], rate, float("-inf"))
            power = tl.exp(rate - tl.max(rate, axis=0)[None, :])
            share = power / tl.sum(power, axis=0)[None, :]
            share = tl.where((e < end)[None, :], share, 0.0)
            if sums is not None:
                total += share[:, :, None] * value
            if rates is not None:
                if near_value is not None:
                    value = value_here[:, None, :] * value
                pull = share * tl.sum(value, axis=2)
                pull -= share * tl.sum(pull, axis=0)[None, :]
                if EXPONENT is not None:
                    pull *= EXPONENT / known_rate
                slope += pull[:, :, None] * there
        if sums is not None:
            place_out = sums + out_row * VALUE_WIDTH + value_at
            tl.store(place_out, tl.sum(total, axis=1), mask=value_known)
        if rates is not None:
            tl.store(rates + out_row * WIDTH + at, tl.sum(slope, axis=1), mask=known)
