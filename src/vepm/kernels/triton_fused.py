"""The Triton kernel that shares edges out and sums over them in one pass.

One program per row keeps its sums in registers. Shares are made from the affiliations at both
ends of an edge, used, and forgotten: nothing of the size of the edges is read or written but
the neighbours' numbers. Arguments that are None are compiled away. Tiles are [communities,
edges, channels], as in the kernels that read shares.
"""
# Triton reads the parameters' names; their types are the tensors' at the call.
# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl


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
