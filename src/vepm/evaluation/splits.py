"""Which nodes or graphs train, validate and test, and the protocols that decide it."""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from vepm.data.dataset import Dataset
from vepm.errors import InputError
from vepm.tasks import TASKS, TaskName

NUM_FOLDS = 10
LABELS_PER_CLASS = 20
MOST_VALIDATION = 1000
NONE = torch.arange(0)
RESULT_FOLDS = 1
"""Seed of the random folds that results are measured on; searches had those of other seeds."""
_FEW_LABELS = re.compile("few-labels-([1-9][0-9]{0,5})(?:-([1-9][0-9]{0,5}))?")


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint parts of a dataset, as int64 indices of nodes (node tasks) or graphs.

    Methods learn from ``train``; an epoch or a setting may be chosen on ``val``, which may be
    empty; ``test`` is only ever scored. Results have the name, for example ``"fold-3"``.
    """

    name: str
    train: Tensor
    val: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        for part in ("train", "val", "test"):
            object.__setattr__(self, part, getattr(self, part).long().reshape(-1))
        if not self.train.numel() or not self.test.numel():
            raise InputError(f"split '{self.name}': the training or the test part is empty")
        everything = torch.cat([self.train, self.val, self.test])
        if everything.unique().numel() != everything.numel():
            raise InputError(f"split '{self.name}': train, val and test overlap or repeat an index")


def public_split(dataset: Dataset) -> Split:
    """The split that comes with the dataset: masks of its graph, or ``splits`` of its graphs.

    Example:
        >>> from vepm.data import planted_graph
        >>> public_split(planted_graph(100, 2, seed=0)).name
        'public'
    """
    if dataset.masks is None:
        raise InputError(f"{dataset.name}: has no public split; use its folds instead")
    return Split("public", *map(torch.nonzero, dataset.masks))


def _published(dataset: Dataset, seed: int, num_folds: int) -> list[Split]:
    """Every published split; WikiCS has 20."""
    if dataset.splits is None or len(dataset.splits) < 2:
        return [public_split(dataset)]
    found = enumerate(dataset.splits)
    return [Split(f"split-{i}", *map(torch.nonzero, masks)) for i, masks in found]


def few_labels(
    dataset: Dataset,
    seed: int = 0,
    num_splits: int = NUM_FOLDS,
    labels_per_class: int = LABELS_PER_CLASS,
) -> list[Split]:
    """Random splits with few training labels, as in semi-supervised node classification.

    This many labelled nodes or graphs of each class train, at most half of the class; of the
    others a third, at most 1,000, validates and the rest tests. Masks of the dataset are not used.

    Example:
        >>> from vepm.data import planted_graph
        >>> few_labels(planted_graph(200, 2, seed=0))[0].train.numel()
        40
    """
    splits = []
    for number in range(num_splits):
        generator = torch.Generator().manual_seed(NUM_FOLDS * seed + number)
        known = (dataset.labels >= 0).nonzero().flatten()
        known = known[torch.randperm(known.numel(), generator=generator)]
        chosen = _first_of_each(dataset.labels[known], lambda n: min(labels_per_class, n // 2))
        rest = known[~chosen]
        val = min(MOST_VALIDATION, rest.numel() // 3)
        name = f"few-{seed}-{number}" if seed else f"few-{number}"
        splits.append(Split(name, known[chosen], rest[:val], rest[val:]))
    return splits


def _first_of_each(labels: Tensor, count: Callable[[int], int]) -> Tensor:
    """Mask of the first members of each class [n]; ``count`` gives their number by class size."""
    chosen = torch.zeros(labels.numel(), dtype=torch.bool)
    for label in labels.unique():
        own = (labels == label).nonzero().flatten()
        chosen[own[: count(own.numel())]] = True
    return chosen


def gin_folds(
    dataset: Dataset, seed: int = RESULT_FOLDS, num_folds: int = NUM_FOLDS
) -> list[Split]:
    """GIN's cross-validation: nine folds train, one is scored at every epoch, none validates.

    The dataset's published folds are used if it has that many; otherwise folds are random, drawn
    by the seed, and stratified by class.
    """
    published = dataset.folds or ()
    pairs = published if len(published) == num_folds else _stratified(dataset, seed, num_folds)
    return [Split(f"fold-{i}", train, NONE, test) for i, (train, test) in enumerate(pairs)]


def capsgnn_folds(
    dataset: Dataset, seed: int = RESULT_FOLDS, num_folds: int = NUM_FOLDS
) -> list[Split]:
    """CapsGNN's cross-validation: a random fold tests, the next validates, the others train."""
    folds = _stratified(dataset, seed, num_folds)
    splits = []
    for i, (train, test) in enumerate(folds):
        val = folds[(i + 1) % num_folds][1]
        splits.append(Split(f"fold-{i}", train[~torch.isin(train, val)], val, test))
    return splits


def _stratified(dataset: Dataset, seed: int, num_folds: int) -> list[tuple[Tensor, Tensor]]:
    """The training and the test part of every random fold."""
    labelled = (dataset.labels >= 0).nonzero().flatten()
    labels = dataset.labels[labelled]
    largest = int(labels.bincount(minlength=1).max())
    if largest < num_folds:
        raise InputError(
            f"{dataset.name}: {num_folds} folds need at least {num_folds} labelled graphs of some "
            f"class, and the largest class has {largest}; ask for fewer folds"
        )
    folds = StratifiedKFold(num_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # A class smaller than the number of folds is missing from some of them.
        warnings.filterwarnings("ignore", message="The least populated class")
        return [(labelled[train], labelled[test]) for train, test in folds.split(labels, labels)]


def keep_labels(split: Split, labels: Tensor, rate: float, seed: int = 0) -> Split:
    """The same split with a share of every class's training labels, at least one of each.

    The labels are those of all nodes or graphs, as in ``dataset.labels``. With one seed, a lower
    rate keeps a subset of a higher one.
    """
    if not 0 < rate <= 1:
        raise InputError(f"keep rate is {rate}; give a share above 0 and up to 1")
    if rate == 1:
        return split
    generator = torch.Generator().manual_seed(seed)
    shuffled = split.train[torch.randperm(split.train.numel(), generator=generator)]
    kept = shuffled[_first_of_each(labels[shuffled], lambda n: max(1, round(rate * n)))]
    return replace(split, name=f"{split.name}/keep-{rate:g}", train=kept.sort().values)


@dataclass(frozen=True)
class Protocol:
    """How a number is measured; called with a dataset, it returns the splits.

    The main rule comes first. The seed is for random splits alone.
    """

    name: str
    rules: tuple[str, ...]
    num_splits: int
    split: Callable[[Dataset, int, int], list[Split]]
    seed: int = 0  # of random splits, unless another is asked for

    def __call__(
        self, dataset: Dataset, seed: int | None = None, num_folds: int = NUM_FOLDS
    ) -> list[Split]:
        """The splits of a dataset."""
        return self.split(dataset, self.seed if seed is None else seed, num_folds)


# Studies without labels ignore the split, which must not be empty.
_NO_LABELS = Split("unsupervised", torch.tensor([0]), NONE, torch.tensor([1]))

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol("public", ("validation",), 1, _published),
        Protocol("wikics", ("validation",), 20, _published),
        Protocol("few-labels", ("validation",), NUM_FOLDS, few_labels),
        Protocol("unsupervised", ("last",), 1, lambda data, seed, n: [_NO_LABELS]),
        Protocol("gin", ("gin", "fold-max", "last"), NUM_FOLDS, gin_folds, RESULT_FOLDS),
        Protocol("capsgnn", ("capsgnn", "last"), NUM_FOLDS, capsgnn_folds, RESULT_FOLDS),
    )
}
"""Protocols by name."""


def protocol_named(name: str) -> Protocol:
    """A protocol by name; ``few-labels-5`` is ``few-labels`` with five labels of each class,
    ``few-labels-5-2`` the same with splits of seed 2.
    """
    if found := _FEW_LABELS.fullmatch(name):
        labels, first = int(found[1]), int(found[2] or 0)
        return replace(
            PROTOCOLS["few-labels"],
            name=name,
            split=lambda data, seed, count: few_labels(data, first + seed, count, labels),
        )
    if name not in PROTOCOLS:
        raise InputError(f"no protocol '{name}'; there are {', '.join(PROTOCOLS)} and few-labels-N")
    return PROTOCOLS[name]


def protocol_for(task: TaskName, name: str = "") -> Protocol:
    """A protocol that fits the task, by name; by default the task's own."""
    fitting = TASKS[task].protocols
    name = name or fitting[0]
    if name not in fitting and not _FEW_LABELS.fullmatch(name):
        raise InputError(f"no protocol '{name}' for {task} tasks; there are {', '.join(fitting)}")
    return protocol_named(name)
