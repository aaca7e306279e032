"""Dropout of entries and of rows, fast on CPUs; zeros of sparse features stay as they are."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vepm.kernels.features import Features

MANY_DRAWS = 2**21  # entries above which drawing random numbers takes much of a step


def dropout(x: Features, probability: float, training: bool) -> Features:
    """Dropout that leaves zeros alone."""
    if isinstance(x, Tensor):
        return drop(x, probability, training)
    return x.with_values(drop(x.values, probability, training))


def drop_rows(parts: Sequence[Features], probability: float, training: bool) -> Sequence[Features]:
    """Dropout of whole rows, the same ones in every part."""
    if not training or probability == 0:
        return parts
    first = parts[0]
    values = first if isinstance(first, Tensor) else first.values
    kept = drop(values.new_ones(first.size(0), 1), probability, training)
    return [
        p * kept if isinstance(p, Tensor) else p.with_values(p.values * kept[p.rows, 0])
        for p in parts
    ]


def drop(x: Tensor, probability: float, training: bool) -> Tensor:
    """Dropout of the entries of a tensor."""
    if not 0 <= probability <= 1:
        raise ValueError(f"dropout must be between 0 and 1, got {probability}")
    if not training or probability == 0:
        return x
    if x.device.type != "cpu" or probability == 1:
        return nn.functional.dropout(x, probability)
    large = x.numel() > MANY_DRAWS and x.is_contiguous()
    # Runs under vmap draw their own numbers.
    if large and not torch._C._functorch.is_batchedtensor(x):
        return _dropout_by_bits(x, probability)
    # A CPU draws uniform numbers several times faster than coin tosses.
    kept = torch.rand_like(x) >= probability
    return x * kept.to(x.dtype).mul_(1 / (1 - probability))


def _dropout_by_bits(x: Tensor, probability: float) -> Tensor:
    """Dropout in which one draw of 64 bits decides on four numbers.

    The probability is rounded to 16 bits; the factor makes up for that.
    """
    levels = 2**16
    dropped = min(round(probability * levels), levels - 1)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - levels // 2
    return (x * kept).mul_(levels / (levels - dropped))
