"""DDP: one model trained by the processes of torchrun as if by one that holds all their batches."""

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from vepm.errors import LostProcessError

GATHER_TIMEOUT = timedelta(days=30)  # the first to finish waits for the last
TRAINING_TIMEOUT = timedelta(hours=1)  # for a process that neither answers nor has ended

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


class ProcessGroup:
    """The processes that train one model; by default this one alone.

    ``DistributedDataParallel`` supports neither steps of some of the parameters alone nor losses
    that call the model several times, so gradients are summed here.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.alone = size == 1
        self.leads = rank == 0  # the one process that writes and prints

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

    def from_all(self, own: T) -> list[T]:
        """A value from every process, once all have reached this point."""
        if self.alone:
            return [own]
        dist.monitored_barrier(timeout=GATHER_TIMEOUT)
        values: list[T | None] = [None] * self.size
        dist.all_gather_object(values, own)
        return [one for one in values if one is not None]

    def diverge(self) -> None:
        """Seed each process differently; until here their random numbers were the same."""
        if not self.alone:
            torch.manual_seed((torch.initial_seed() + self.rank + 1) % 2**63)


@contextlib.contextmanager
def process_group(device: str = "cpu") -> Iterator[ProcessGroup]:
    """The processes of torchrun, over gloo or NCCL, or this one alone, as a context."""
    rank, size = rank_and_world()
    if size == 1:
        yield ProcessGroup()
        return
    place = torch.device(own_device(device).replace("auto", "cpu"))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=TRAINING_TIMEOUT)
    try:
        yield ProcessGroup(rank, size)
    except RuntimeError as error:
        lost = "another process of this run has ended or cannot be reached"
        text = str(error).lower()
        if isinstance(error, dist.DistError) or "gloo" in text or "nccl" in text:
            raise LostProcessError(lost) from error
        raise
    dist.destroy_process_group()
