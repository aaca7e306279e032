"""The processes of torchrun: who they are, and what they tell each other."""

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from vepm.errors import LostProcessError

START_TIMEOUT = timedelta(minutes=5)
GATHER_TIMEOUT = timedelta(days=30)
"""The first to finish waits for the last."""
TRAINING_TIMEOUT = timedelta(hours=1)
"""How long to wait for a process that neither answers nor has ended; one that ends is noticed at
once."""

T = TypeVar("T")


def rank_and_world() -> tuple[int, int]:
    """Rank of this process and number of processes under torchrun; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def own_device(device: str) -> str:
    """The device of this process: under torchrun GPUs are assigned in turn."""
    gpus = torch.cuda.device_count()
    if rank_and_world()[1] > 1 and device in ("auto", "cuda") and gpus:
        return f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % gpus}"
    return device


@contextlib.contextmanager
def all_ranks() -> Iterator[None]:
    """Connect to the other processes of torchrun, if any, until the end of the block."""
    if rank_and_world()[1] == 1:
        yield
        return
    dist.init_process_group("gloo", timeout=START_TIMEOUT)
    with _report_lost_process():
        yield
    dist.destroy_process_group()


@contextlib.contextmanager
def process_group(device: str) -> Iterator["ProcessGroup"]:
    """The process group of torchrun, or this process alone, until the end of the block.

    CPUs communicate over gloo, GPUs over NCCL.
    """
    rank, size = rank_and_world()
    if size == 1:
        yield ProcessGroup()
        return
    place = torch.device(own_device(device).replace("auto", "cpu"))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=TRAINING_TIMEOUT)
    with _report_lost_process():
        yield ProcessGroup(rank, size)
    dist.destroy_process_group()


@contextlib.contextmanager
def _report_lost_process() -> Iterator[None]:
    """Turn the errors of gloo and NCCL about a lost process into a clear one."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).lower()
        if isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "nccl")):
            raise LostProcessError(
                "another process of this run has ended or cannot be reached"
            ) from error
        raise


def from_all_ranks(own: T) -> list[T]:
    """A value from every process, once the last has come here."""
    world = rank_and_world()[1]
    if world == 1:
        return [own]
    dist.monitored_barrier(timeout=GATHER_TIMEOUT)
    values: list[T | None] = [None] * world
    dist.all_gather_object(values, own)
    return [one for one in values if one is not None]


class ProcessGroup:
    """The processes that train one model; by default this one alone.

    Args:
        rank: Rank of this process.
        size: Number of processes.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def alone(self) -> bool:
        """Whether there is only one process."""
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
        """The result of the first process, on all of them."""
        found = [compute() if self.leads else None]
        if not self.alone:
            dist.broadcast_object_list(found)
        return found[0]  # type: ignore[return-value]

    def diverge(self) -> None:
        """Seed each process differently; until here their random numbers were the same."""
        if not self.alone:
            torch.manual_seed((torch.initial_seed() + self.rank + 1) % 2**63)
