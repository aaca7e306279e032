"""Which nodes or graphs train, validate and test."""

import warnings
from dataclasses import dataclass, replace

import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from vepm.data.dataset import Dataset
from vepm.errors import InputError

NUM_FOLDS = 10


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint parts of a dataset, as int64 indices of nodes (node tasks) or graphs.

    Args:
        name: what to call the split in results, for example ``"fold-3"``.
        train: what a method learns from.
        val: what an epoch or a setting may be chosen on; empty where a protocol has none.
        test: what is only ever scored.

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
    """The split that comes with the dataset.

    Args:
        dataset: a node task, whose graph has masks, or a graph task with ``splits``.

    Raises:
        InputError: if the dataset has no split, or one without training or test part.

    Example:
        >>> from vepm.data import planted_graph
        >>> from vepm.evaluation import public_split
        >>> public_split(planted_graph(100, 2, seed=0)).name
        'public'
    """
    masks = dataset.masks
    if masks is None:
        raise InputError(f"{dataset.name}: has no public split; use its folds instead")
    return _from_masks("public", masks)


def wikics_splits(dataset: Dataset) -> list[Split]:
    """Every published split of a dataset that has several, as WikiCS has 20.

    Raises:
        InputError: if the dataset has only one split.
    """
    if not dataset.splits:
        raise InputError(f"{dataset.name}: does not come with several splits; use the public one")
    return [_from_masks(f"split-{i}", masks) for i, masks in enumerate(dataset.splits)]


LABELS_PER_CLASS = 20
MOST_VALIDATION = 1000


def few_labels(
    dataset: Dataset,
    seed: int = 0,
    num_splits: int = NUM_FOLDS,
    labels_per_class: int = LABELS_PER_CLASS,
) -> list[Split]:
    """Random splits with few training labels, as in semi-supervised node classification.

    So many labelled nodes or graphs of each class train, at most half of the class; of the others
    a third, at most 1,000, validates and the rest tests.

    Args:
        dataset: a node or graph task; masks that come with it are not used.
        seed: of the draws.
        num_splits: number of splits.
        labels_per_class: training labels of each class.

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
        y = dataset.labels[known]
        chosen = torch.zeros(known.numel(), dtype=torch.bool)
        for label in y.unique():
            own = (y == label).nonzero().flatten()
            chosen[own[: min(labels_per_class, own.numel() // 2)]] = True
        rest = known[~chosen]
        val = min(MOST_VALIDATION, rest.numel() // 3)
        name = f"few-{seed}-{number}" if seed else f"few-{number}"
        splits.append(Split(name, known[chosen], rest[:val], rest[val:]))
    return splits


def gin_folds(dataset: Dataset, seed: int = 0, num_folds: int = NUM_FOLDS) -> list[Split]:
    """GIN's cross-validation: nine folds train, one is scored at every epoch, none validates.

    The dataset's published folds are used where it has them (and ``num_folds`` is their number);
    otherwise folds are random and stratified by class.

    Args:
        dataset: a graph task.
        seed: of the random folds; published ones do not depend on it.
        num_folds: number of folds.

    Returns:
        One split per fold, ``val`` empty, ``test`` the held-out fold.
    """
    none = torch.empty(0, dtype=torch.long)
    if dataset.folds is not None and len(dataset.folds) == num_folds:
        pairs = list(dataset.folds)
    else:
        parts = _stratified_parts(dataset, seed, num_folds)
        pairs = [(_others(parts, {i}), part) for i, part in enumerate(parts)]
    return [Split(f"fold-{i}", train, none, test) for i, (train, test) in enumerate(pairs)]


def capsgnn_folds(dataset: Dataset, seed: int = 0, num_folds: int = NUM_FOLDS) -> list[Split]:
    """CapsGNN's cross-validation: fold i tests, the next one validates, the others train.

    Args:
        dataset: a graph task.
        seed: of the random folds, which are stratified by class.
        num_folds: number of folds.

    Returns:
        One split per fold; every labelled graph is tested exactly once.
    """
    parts = _stratified_parts(dataset, seed, num_folds)
    following = [(i + 1) % num_folds for i in range(num_folds)]
    return [
        Split(f"fold-{i}", _others(parts, {i, j}), parts[j], parts[i])
        for i, j in enumerate(following)
    ]


def keep_labels(split: Split, labels: Tensor, rate: float, seed: int = 0) -> Split:
    """The same split with fewer training labels, for the reduced-label study.

    Args:
        split: the full split; its validation and test parts are kept as they are.
        labels: of all nodes or graphs, as in ``dataset.labels``.
        rate: share of every class's training labels to keep, in (0, 1].
        seed: of the draw; with one seed, a lower rate keeps a subset of a higher one.

    Returns:
        A split whose training part has at least one label of every class it had; the same split
        if everything is kept.

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
    of_class = labels[shuffled]
    kept = []
    for label in of_class.unique():
        members = shuffled[of_class == label]
        kept.append(members[: max(1, round(rate * members.numel()))])
    return replace(split, name=f"{split.name}/keep-{rate:g}", train=torch.cat(kept).sort().values)


def _from_masks(name: str, masks: tuple[Tensor, Tensor, Tensor]) -> Split:
    train, val, test = (mask.nonzero().reshape(-1) for mask in masks)
    return Split(name, train, val, test)


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
        parts = [test for _, test in folds.split(labelled.numpy(), labels[labelled].numpy())]
    return [labelled[torch.from_numpy(part)] for part in parts]


def _others(parts: list[Tensor], left_out: set[int]) -> Tensor:
    return torch.cat([part for i, part in enumerate(parts) if i not in left_out]).sort().values
