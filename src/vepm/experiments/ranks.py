"""Sharing work between the processes of torchrun."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

LONGEST_WAIT = timedelta(days=30)


def rank_and_world() -> tuple[int, int]:
    """Number of this process and number of all, as torchrun tells; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def own_device(device: str) -> str:
    """The device of this process: under torchrun each has a GPU of its own, as far as they go."""
    gpus = torch.cuda.device_count()
    if rank_and_world()[1] > 1 and device in ("auto", "cuda") and gpus:
        return f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % gpus}"
    return device


def wait_for_others() -> None:
    """Return when every process of torchrun has come here."""
    if rank_and_world()[1] == 1:
        return
    dist.init_process_group("gloo", timeout=LONGEST_WAIT)
    dist.barrier()
    dist.destroy_process_group()
