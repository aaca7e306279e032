"""Protocols: who trains, validates and tests, and the selection rules that go with it."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from vepm.data.dataset import Dataset
from vepm.errors import InputError
from vepm.evaluation.splits import (
    NUM_FOLDS,
    Split,
    capsgnn_folds,
    few_labels,
    gin_folds,
    public_split,
    wikics_splits,
)
from vepm.tasks import TASKS, TaskName

_FEW_LABELS = re.compile("few-labels-([1-9][0-9]{0,5})")


@dataclass(frozen=True)
class Protocol:
    """How a number is measured; called with a dataset, it gives the splits.

    Args:
        name: what to ask for.
        rules: names of its selection rules, the main one first.
        num_splits: how many splits it has by default.
        split: from a dataset, a seed of random folds and the number of folds to the splits.

    Example:
        >>> from vepm.data import planted_graph
        >>> from vepm.evaluation import PROTOCOLS
        >>> [split.name for split in PROTOCOLS["public"](planted_graph(100, 2, seed=0))]
        ['public']
    """

    name: str
    rules: tuple[str, ...]
    num_splits: int
    split: Callable[[Dataset, int, int], list[Split]]

    def __call__(self, dataset: Dataset, seed: int = 0, num_folds: int = NUM_FOLDS) -> list[Split]:
        """The splits of a dataset; the seed draws random folds and nothing else."""
        return self.split(dataset, seed, num_folds)


def _published(dataset: Dataset, seed: int, num_folds: int) -> list[Split]:
    several = dataset.splits is not None and len(dataset.splits) > 1
    return wikics_splits(dataset) if several else [public_split(dataset)]


# Studies without labels look at no split, and a split has nodes to train and to test on.
_NO_LABELS = Split("unsupervised", torch.tensor([0]), torch.arange(0), torch.tensor([1]))

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol("public", ("validation",), 1, _published),
        Protocol("wikics", ("validation",), 20, lambda data, seed, n: wikics_splits(data)),
        Protocol("few-labels", ("validation",), NUM_FOLDS, few_labels),
        Protocol("unsupervised", ("last",), 1, lambda data, seed, n: [_NO_LABELS]),
        Protocol("gin", ("gin", "fold-max", "last"), NUM_FOLDS, gin_folds),
        Protocol("capsgnn", ("capsgnn", "last"), NUM_FOLDS, capsgnn_folds),
    )
}
"""Protocols by name."""


def protocol_named(name: str) -> Protocol:
    """A protocol by name; ``few-labels-5`` is ``few-labels`` with five labels of each class.

    Raises:
        InputError: if there is no such protocol.

    Example:
        >>> from vepm.evaluation import protocol_named
        >>> protocol_named("few-labels-5").rules
        ('validation',)
    """
    if found := _FEW_LABELS.fullmatch(name):
        few = functools.partial(few_labels, labels_per_class=int(found[1]))
        return replace(PROTOCOLS["few-labels"], name=name, split=few)
    if name not in PROTOCOLS:
        raise InputError(f"no protocol '{name}'; there are {', '.join(PROTOCOLS)} and few-labels-N")
    return PROTOCOLS[name]


def protocol_for(task: TaskName, name: str = "") -> Protocol:
    """A protocol by name, by default the task's own.

    Raises:
        InputError: if there is no such protocol, or it does not fit the task.
    """
    fitting = TASKS[task].protocols
    name = name or fitting[0]
    if name not in fitting and not _FEW_LABELS.fullmatch(name):
        raise InputError(f"no protocol '{name}' for {task} tasks; there are {', '.join(fitting)}")
    return protocol_named(name)
