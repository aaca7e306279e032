"""Sharing work between the processes of torchrun."""

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from vepm.errors import LostProcessError

LONGEST_MEETING = timedelta(minutes=5)
LONGEST_WAIT = timedelta(days=30)
"""The first to finish waits for the last."""
LONGEST_SILENCE = timedelta(hours=1)
"""Processes that train together wait so long for one that neither answers nor is known to be gone;
one that ends is known to be at once."""

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
    with _losses_told():
        yield
    dist.destroy_process_group()


@contextlib.contextmanager
def training_team(device: str) -> Iterator["Team"]:
    """All processes of torchrun as one team, or this one alone; they part at the end.

    CPUs meet over gloo, GPUs over NCCL; torchrun has told each where the first is.
    """
    rank, size = rank_and_world()
    if size == 1:
        yield Team()
        return
    place = torch.device(own_device(device).replace("auto", "cpu"))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=LONGEST_SILENCE)
    with _losses_told():
        yield Team(rank, size)
    dist.destroy_process_group()


@contextlib.contextmanager
def _losses_told() -> Iterator[None]:
    """Say in words that another process is gone, which gloo and NCCL say in their own."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).lower()
        if isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "nccl")):
            raise LostProcessError(
                "another of the processes that work together has ended or cannot be reached"
            ) from error
        raise


def from_all_ranks(own: T) -> list[T]:
    """What each process has to say, when the last has come here."""
    world = rank_and_world()[1]
    if world == 1:
        return [own]
    dist.monitored_barrier(timeout=LONGEST_WAIT)
    said: list[T | None] = [None] * world
    dist.all_gather_object(said, own)
    return [one for one in said if one is not None]


class Team:
    """The processes that train one model together; one alone unless told otherwise.

    Args:
        rank: Number of this process.
        size: Number of all.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def alone(self) -> bool:
        """Whether there is but one process."""
        return self.size == 1

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes and prints."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, the same in each; in place."""
        if not self.alone:
            dist.all_reduce(values)
        return values

    def from_first(self, compute: Callable[[], T]) -> T:
        """What the first process finds; the others wait for it."""
        found = [compute() if self.leads else None]
        if not self.alone:
            dist.broadcast_object_list(found)
        return found[0]  # type: ignore[return-value]

    def part_ways(self) -> None:
        """Give each process random numbers of its own, which were the same so far."""
        if not self.alone:
            torch.manual_seed((torch.initial_seed() + self.rank + 1) % 2**63)
