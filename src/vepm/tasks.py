"""What is labelled: the nodes of one graph, or whole graphs; to add a task, add it to ``TASKS``."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from vepm.errors import InputError

TaskName = Literal["node", "graph"]
Masks = tuple[Tensor, Tensor, Tensor]
MASK_NAMES = ("train_mask", "val_mask", "test_mask")
UNLABELLED = -1


@dataclass(frozen=True)
class Task:
    """What a model learns to label, and what follows from that."""

    name: TaskName
    single_graph: bool  # one graph whose nodes are labelled, or any number with a label each
    conv: str  # the graph convolution to use unless another is asked for
    protocols: tuple[str, ...]  # the evaluation protocols that fit, the default first
    search_protocol: str  # the one whose validation part a search chooses settings on


TASKS: dict[str, Task] = {
    "node": Task("node", True, "gcn", ("public", "few-labels"), "public"),
    "graph": Task("graph", False, "gin", ("gin", "capsgnn", "public", "few-labels"), "capsgnn"),
}


def task_named(name: Any) -> Task:
    """The task of this name; an InputError if there is none."""
    if not isinstance(name, str) or name not in TASKS:
        raise InputError(f"task is {name!r}; give one of {', '.join(map(repr, TASKS))}")
    return TASKS[name]
