"""How fast memory is copied: the limit of sums over neighbours."""

import torch

from vepm.bench import time_call

BYTES = {"cpu": 2**28, "cuda": 2**32}
"""Larger than any cache, small beside the memory of the machine."""


def copy_bandwidth(device: str) -> float:
    """Bytes per second that a copy within memory reads and writes."""
    source = torch.rand(BYTES[device] // 4, device=device)
    target = torch.empty_like(source)
    seconds = time_call(lambda: target.copy_(source), device, repeats=12)
    return 2 * BYTES[device] / min(seconds)
