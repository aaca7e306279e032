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
from vepm.tasks import TASKS, Masks, TaskName

NUM_FOLDS = 10
LABELS_PER_CLASS = 20
MOST_VALIDATION = 1000
_FEW_LABELS = re.compile("few-labels-([1-9][0-9]{0,5})(?:-([1-9][0-9]{0,5}))?")


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint parts of a dataset, as int64 indices of nodes (node tasks) or graphs.

    Methods learn from ``train``; an epoch or a setting may be chosen on ``val``, which may be
    empty; ``test`` is only ever scored. Results have the name, for example ``"fold-3"``.

    Example:
        >>> import torch
        >>> from vepm.evaluation import Split
        >>> Split("half", torch.tensor([0, 1]), torch.tensor([]), torch.tensor([2, 3])).val.numel()
        0
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

    Raises:
        InputError: if the dataset has no split, or one without training or test part.

    Example:
        >>> from vepm.data import planted_graph
        >>> from vepm.evaluation import public_split
        >>> public_split(planted_graph(100, 2, seed=0)).name
        'public'
    """
    if dataset.masks is None:
        raise InputError(f"{dataset.name}: has no public split; use its folds instead")
    return _from_masks("public", dataset.masks)


def wikics_splits(dataset: Dataset) -> list[Split]:
    """Every published split of a dataset that has several, as WikiCS has 20.

    Raises:
        InputError: if the dataset has only one split.
    """
    if not dataset.splits:
        raise InputError(f"{dataset.name}: does not come with several splits; use the public one")
    return [_from_masks(f"split-{i}", masks) for i, masks in enumerate(dataset.splits)]


def _from_masks(name: str, masks: Masks) -> Split:
    return Split(name, *(mask.nonzero() for mask in masks))


def few_labels(
    dataset: Dataset,
    seed: int = 0,
    num_splits: int = NUM_FOLDS,
    labels_per_class: int = LABELS_PER_CLASS,
) -> list[Split]:
    """Random splits with few training labels, as in semi-supervised node classification.

    So many labelled nodes or graphs of each class train, at most half of the class; of the others
    a third, at most 1,000, validates and the rest tests. Masks of the dataset are not used.

    Example:
        >>> from vepm.data import planted_graph
        >>> from vepm.evaluation import few_labels
        >>> [split.train.numel() for split in few_labels(planted_graph(200, 2, seed=0))][:2]
        [40, 40]
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
    """Mask of the first of each class [n]; their number depends on the size of the class."""
    chosen = torch.zeros(labels.numel(), dtype=torch.bool)
    for label in labels.unique():
        own = (labels == label).nonzero().flatten()
        chosen[own[: count(own.numel())]] = True
    return chosen


def gin_folds(dataset: Dataset, seed: int = 0, num_folds: int = NUM_FOLDS) -> list[Split]:
    """GIN's cross-validation: nine folds train, one is scored at every epoch, none validates.

    The dataset's published folds are used where it has them (and ``num_folds`` is their number);
    otherwise folds are random, drawn by the seed, and stratified by class.
    """
    none = torch.arange(0)
    if dataset.folds is not None and len(dataset.folds) == num_folds:
        pairs = list(dataset.folds)
    else:
        parts = _stratified_parts(dataset, seed, num_folds)
        pairs = [(_others(parts, {i}), part) for i, part in enumerate(parts)]
    return [Split(f"fold-{i}", train, none, test) for i, (train, test) in enumerate(pairs)]


def capsgnn_folds(dataset: Dataset, seed: int = 0, num_folds: int = NUM_FOLDS) -> list[Split]:
    """CapsGNN's cross-validation: fold i tests, the next one validates, the others train.

    Folds are random, drawn by the seed, and stratified by class.
    """
    parts = _stratified_parts(dataset, seed, num_folds)
    following = [(i + 1) % num_folds for i in range(num_folds)]
    return [
        Split(f"fold-{i}", _others(parts, {i, j}), parts[j], parts[i])
        for i, j in enumerate(following)
    ]


def _stratified_parts(dataset: Dataset, seed: int, num_folds: int) -> list[Tensor]:
    labels = dataset.labels
    labelled = (labels >= 0).nonzero().reshape(-1)
    largest = int(labels[labelled].bincount().max()) if labelled.numel() else 0
    if largest < num_folds:
        raise InputError(
            f"{dataset.name}: {num_folds} folds need at least {num_folds} labelled graphs of some "
            f"class, and the largest class has {largest}; ask for fewer folds"
        )
    folds = StratifiedKFold(num_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # A class smaller than the number of folds is missing from some of them.
        warnings.filterwarnings("ignore", message="The least populated class")
        return [labelled[test] for _, test in folds.split(labelled, labels[labelled])]


def _others(parts: list[Tensor], left_out: set[int]) -> Tensor:
    return torch.cat([part for i, part in enumerate(parts) if i not in left_out]).sort().values


def keep_labels(split: Split, labels: Tensor, rate: float, seed: int = 0) -> Split:
    """The same split with a share of every class's training labels, at least one of each.

    The labels are those of all nodes or graphs, as in ``dataset.labels``. With one seed, a lower
    rate keeps a subset of a higher one.

    Example:
        >>> import torch
        >>> from vepm.evaluation import Split, keep_labels
        >>> full = Split("all", torch.arange(8), torch.tensor([]), torch.tensor([8]))
        >>> keep_labels(full, torch.tensor([0, 1] * 4 + [0]), rate=0.5).train.numel()
        4
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
    """How a number is measured; called with a dataset, it gives the splits.

    Of its selection rules, the main one comes first.

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
    """A protocol by name; ``few-labels-5`` is ``few-labels`` with five labels of each class,
    ``few-labels-5-2`` the same with splits of seed 2.

    Raises:
        InputError: if there is no such protocol.

    Example:
        >>> from vepm.evaluation import protocol_named
        >>> protocol_named("few-labels-5").rules
        ('validation',)
    """
    if found := _FEW_LABELS.fullmatch(name):
        labels, first = int(found[1]), int(found[2] or 0)

        def few(dataset: Dataset, seed: int, num_splits: int) -> list[Split]:
            return few_labels(dataset, first + seed, num_splits, labels)

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
