"""Gradients of data parallel training over NCCL, as far as one GPU can show them."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from vepm.data import load
from vepm.nn import VEPM
from vepm.objective import Terms
from vepm.scale.ddp import ProcessGroup
from vepm.scale.executor import descend
from vepm.scale.norms import SyncNorm, replace_norms
from vepm.training import preset, single_graph
from vepm.training.losses import bound_loss, pretraining_loss

LARGEST_ERROR = 1e-10


class _GroupOfOne(ProcessGroup):
    """A process group of one that communicates all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.alone = False


def check_ddp(device: str = "cuda") -> Iterator[dict[str, Any]]:
    """Largest difference of any gradient from that without a process group, in double precision.

    NCCL wants a GPU for every process. With one GPU that is a group of one, whose sums, gradients
    and norms are reduced by the same code as those of many.
    """
    dataset = load("digits")
    config = preset("tuned", dataset.task)
    graph = dataset.graphs[0]
    batch = single_graph(graph.clone().apply(lambda t: t.double(), "x"), device)
    rows = graph.train_mask.nonzero().flatten().to(device)
    torch.manual_seed(0)
    sizes = (dataset.num_features, len(dataset.class_names))
    model = VEPM(*sizes, num_communities=16, num_metacommunities=4).double().to(device)
    losses: dict[str, Callable[[VEPM], Terms]] = {
        "pretrain": lambda m: pretraining_loss(m, batch, config.training),
        "joint": lambda m: bound_loss(m, batch, rows, config.training),
    }
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    try:
        for step, loss in losses.items():
            error = _difference(model, loss)
            what = f"{backend}, gradient of the {step} step"
            yield {"what": what, "error": error, "ok": error <= LARGEST_ERROR}
    finally:
        dist.destroy_process_group()


def _difference(model: VEPM, loss: Callable[[VEPM], Terms]) -> float:
    plain, shared = copy.deepcopy(model), copy.deepcopy(model)
    torch.manual_seed(1)
    loss(plain).loss.backward()
    moving = [p for p, own in zip(shared.parameters(), plain.parameters(), strict=True)
              if own.grad is not None]  # fmt: skip
    group = _GroupOfOne()
    replace_norms(shared, lambda norm: SyncNorm(norm, group))
    torch.manual_seed(1)
    descend(loss(shared).loss, [torch.optim.SGD(moving, lr=0.0)], group)
    return max(
        float((a.grad - b.grad).abs().max())
        for a, b in zip(shared.parameters(), plain.parameters(), strict=True)
        if a.grad is not None and b.grad is not None
    )
