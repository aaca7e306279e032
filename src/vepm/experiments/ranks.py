"""Sharing work between the processes of torchrun."""

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

LONGEST_MEETING = timedelta(minutes=5)
LONGEST_WAIT = timedelta(days=30)
"""The first to finish waits for the last."""

T = TypeVar("T")


def rank_and_world() -> tuple[int, int]:
    """Number of this process and number of all, as torchrun tells; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def own_device(device: str) -> str:
    """The device of this process: under torchrun each has a GPU of its own, as far as they go."""
    gpus = torch.cuda.device_count()
    if rank_and_world()[1] > 1 and device in ("auto", "cuda") and gpus:
        return f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % gpus}"
    return device


@contextlib.contextmanager
def all_ranks() -> Iterator[None]:
    """Meet the other processes of torchrun, if there are any, and part from them at the end."""
    if rank_and_world()[1] == 1:
        yield
        return
    dist.init_process_group("gloo", timeout=LONGEST_MEETING)
    try:
        yield
    finally:
        dist.destroy_process_group()


def from_all_ranks(own: T) -> list[T]:
    """What each process has to say, when the last has come here."""
    world = rank_and_world()[1]
    if world == 1:
        return [own]
    dist.monitored_barrier(timeout=LONGEST_WAIT)
    said: list[T | None] = [None] * world
    dist.all_gather_object(said, own)
    return [one for one in said if one is not None]
