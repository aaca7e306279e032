"""Training with captured CUDA graphs gives the same losses as training kernel by kernel."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from vepm.data import load
from vepm.evaluation import PROTOCOLS
from vepm.scale import cuda_graphs
from vepm.tasks import TASKS
from vepm.training import Fitted, Run, fit_many, preset

CASES = (("digits", "public", 1), ("digits", "public", 4), ("digits-graphs", "gin", 4))
EPOCHS = {"pretrain_epochs": 6, "epochs": 6}


def check_capture() -> Iterator[dict[str, Any]]:
    """Largest difference between any two losses; both runs draw the same random numbers."""
    for name, protocol, count in CASES:
        with _repeatable(), mock.patch.object(cuda_graphs, "WARMUP", math.inf):
            plain = _train(name, protocol, count)
        with _repeatable():
            replayed = _train(name, protocol, count)
        error = max(
            abs(ours["loss"] - theirs["loss"])
            for one, other in zip(replayed, plain, strict=True)
            for ours, theirs in zip(one.history, other.history, strict=True)
        )
        yield {"what": f"captured {name}, {count} runs", "error": error, "ok": error == 0}


def _train(name: str, protocol: str, count: int) -> list[Fitted]:
    dataset = load(name)
    size = 0 if TASKS[dataset.task].single_graph else 64
    config = preset("tuned", dataset.task).replace(**EPOCHS, batch_size=size)
    splits = (PROTOCOLS[protocol](dataset, 0) * count)[:count]
    runs = [
        Run(split.train, split.val, split.test, seed)
        for split, seed in zip(splits, range(count), strict=True)
    ]
    return fit_many(dataset, config, runs, device="cuda")


@contextmanager
def _repeatable() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
