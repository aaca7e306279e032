"""From labels and splits as people write them to class indices and masks.

One rule for labels everywhere: they are names or integers; -1 and empty mean unlabelled. If all
labels of a set are numbers, they must be integers, and classes are in numerical order; otherwise
classes are in alphabetical order.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import BaseShuffleSplit
from sklearn.utils import check_random_state
from torch import Tensor

from vepm.data.dataset import Dataset
from vepm.data.features import shape_of
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, UNLABELLED, Masks

logger = logging.getLogger("vepm")

SPLIT_NAMES = ("train", "val", "test")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
LARGEST_LABEL = 10**18
_REMEDY = "label classes with integers from 0 or with names, and leave unlabelled ones empty or -1"

Where = Callable[[int], str]


def encode(
    labels: Any, count: int, where: Where, source: str, class_names: Sequence[str] | None = None
) -> tuple[Tensor, tuple[str, ...]]:
    """Class indices of labels given as integers or as text, and the names of the classes.

    Known classes are taken as they are, and otherwise found from the labels. Integers are indices
    of known classes if those have names that are not integers.
    """
    if labels is None:
        return torch.full((count,), UNLABELLED), tuple(class_names or ())
    if isinstance(labels, Tensor):
        # NumPy lacks some of the types of PyTorch.
        labels = (labels.double() if labels.is_floating_point() else labels).detach().cpu()
    array: NDArray[Any] = np.asarray(labels)
    if array.shape not in ((count,), (count, 1)):
        raise InputError(
            f"{source}: labels have shape {list(array.shape)}; one each ([{count}]) needed"
        )
    if array.dtype.kind not in "biufOUS":
        raise InputError(f"{source}: labels hold {array.dtype}; integers or text are needed")
    numbers = array.dtype.kind in "biuf"
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    cells = array.reshape(-1) if numbers else np.array([_text(v) for v in array.flat], dtype=object)
    values, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
    words, known = [str(value) for value in values.tolist()], class_names
    if numbers and known is not None and not all(map(_INTEGER.fullmatch, known)):
        known = [str(i) for i in range(len(known))]
    # A fitted model may have classes "01" and "cat"; then "01" is a name here too.
    as_integers = all(is_number(word) for word in (*words, *(known or ())) if word)
    places = [where(int(i)) for i in first]
    if as_integers:
        words = [_integer_text(word, at) for word, at in zip(words, places, strict=True)]
    if known is None:
        known = class_names = sorted(set(words) - {""}, key=int if as_integers else None)
    index = {name: i for i, name in enumerate(known)} | {"": UNLABELLED}
    for word, at in zip(words, places, strict=True):
        if word not in index:
            shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            raise InputError(f"{at}: label '{word[:40]}' is none of the known classes ({shown})")
    found = torch.tensor([index[word] for word in words], dtype=torch.long)
    return found[torch.from_numpy(inverse)], tuple(class_names or ())


def is_number(cell: Any) -> bool:
    """Whether a cell of a table is a number, a text that says one, or a vector of numbers."""
    if isinstance(cell, np.ndarray):
        cell = cell.ravel().tolist()
    if isinstance(cell, list | tuple):
        return len(cell) > 0 and all(isinstance(item, Real) for item in cell)
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _integer_text(word: str, at: str) -> str:
    if not word:
        return ""
    if _INTEGER.fullmatch(word):
        number = int(word)
    elif float(word).is_integer() and abs(float(word)) < LARGEST_LABEL:
        number = int(float(word))
    else:
        wrong = f"label '{word[:40]}' is not an integer of at most 19 digits"
        raise InputError(f"{at}: {wrong}; {_REMEDY}")
    if number < UNLABELLED:
        raise InputError(f"{at}: label '{word}' is negative; {_REMEDY}")
    return "" if number == UNLABELLED else str(number)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace").strip()
    return "" if value is None else str(value).strip()


def item_masks(
    given: Mapping[str, object], labelled: Tensor, source: str
) -> tuple[Masks, tuple[Masks, ...] | None]:
    """The masks of the first split, and those of all splits if there are several.

    Masks are [N], or [N, R] for R splits; any may be absent. They are restricted to the labelled
    nodes. Without a ``train_mask`` all labelled nodes outside the other masks are for training.
    """
    count = labelled.numel()
    columns = {
        name: _check_mask(given[name], count, f"{source}, {name}")
        for name in MASK_NAMES
        if given.get(name) is not None
    }
    widths = {mask.size(1) for mask in columns.values()} | {1}
    if len(widths - {1}) > 1:
        raise InputError(f"{source}: masks hold different numbers of splits; give the same of each")
    known = labelled[:, None].expand(-1, max(widths))
    none = torch.zeros_like(known)
    val, test = (columns.get(name, none) & known for name in MASK_NAMES[1:])
    train = columns.get("train_mask", ~(val | test)) & known
    splits = tuple(zip(train.unbind(1), val.unbind(1), test.unbind(1), strict=True))
    shared = int((splits[0][0] & (splits[0][1] | splits[0][2])).sum())
    if shared:
        both = f"{shared} training nodes are also in the validation or test part"
        logger.warning("%s: %s; scores will be too high", source, both)
    return splits[0], splits if len(splits) > 1 else None


def _check_mask(mask: object, num_nodes: int, source: str) -> Tensor:
    """A mask as boolean [N, R], R the number of splits it holds."""
    if not isinstance(mask, Tensor) or mask.dim() not in (1, 2) or mask.size(0) != num_nodes:
        found = f"{source}: is {shape_of(mask)}"
        raise InputError(f"{found}; one True or False per node ([{num_nodes}]) needed")
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise InputError(f"{source}: holds values other than 0 and 1; give a boolean mask")
    if mask.dim() == 2 and mask.size(1) == 0:
        raise InputError(f"{source}: holds no split; give a boolean mask [{num_nodes}]")
    return mask.detach().cpu().bool().reshape(num_nodes, -1)


def masks_from_text(values: Sequence[str], where: Where) -> dict[str, Tensor]:
    """Masks by name from cells of train, val and test; an empty cell is in none of them."""
    for i, value in enumerate(values):
        if value and value not in SPLIT_NAMES:
            known = "train, val, test; use one of these or leave it empty"
            raise InputError(f"{where(i)}: '{value}' is none of {known}")
    return {
        mask: torch.tensor([value == name for value in values])
        for mask, name in zip(MASK_NAMES, SPLIT_NAMES, strict=True)
    }


def draw_split(y: Tensor, *, per_class: int, num_val: int, seed: int) -> Masks:
    """A random split: this many per class train, this many validate and the rest test."""
    order = torch.randperm(y.numel(), generator=torch.Generator().manual_seed(seed))
    train = torch.zeros(y.numel(), dtype=torch.bool)
    for label in y[y != UNLABELLED].unique().tolist():
        train[order[y[order] == label][:per_class]] = True
    rest = order[~train[order] & (y[order] != UNLABELLED)]
    val, test = torch.zeros_like(train), torch.zeros_like(train)
    val[rest[:num_val]] = True
    test[rest[num_val:]] = True
    return train, val, test


def relabelled(
    dataset: Dataset, y: Any, rows: Tensor | None = None, class_names: Sequence[str] | None = None
) -> Dataset:
    """A dataset with other labels than its own.

    Args:
        dataset: the graphs, whose masks still hold.
        y: labels in the order of :attr:`Dataset.labels`, or of ``rows``; -1 is unlabelled.
        rows: the only items that have a label; then the masks do not hold and all of them train.
        class_names: the classes of a fitted model; found from the labels if not given.

    Example:
        >>> from vepm.data import load, relabelled
        >>> dataset = relabelled(load("KarateClub"), ["left", "right"], torch.tensor([0, 33]))
        >>> dataset.class_names, dataset.graphs[0].train_mask.sum()
        (('left', 'right'), tensor(2))
    """
    name, labels = dataset.name, torch.full_like(dataset.labels, UNLABELLED)
    chosen = torch.arange(labels.numel()) if rows is None else rows
    found, names = encode(y, len(chosen), lambda i: f"{name}, label {i}", name, class_names)
    labels[chosen] = found
    given: dict[str, Tensor] = {}
    if rows is None and dataset.masks is not None:
        train, val, test = dataset.masks
        given = {"val_mask": val, "test_mask": test}
        # A train mask that only follows from the labels does so from the new ones too.
        if not torch.equal(train, (dataset.labels != UNLABELLED) & ~(val | test)):
            given["train_mask"] = train
    masks, splits = item_masks(given, labels >= 0, name)
    changed = replace(dataset.with_labels(labels), num_classes=len(names), class_names=names)
    if dataset.single_graph:
        changed.graphs[0].update(dict(zip(MASK_NAMES, masks, strict=True)))
        return replace(changed, splits=splits)
    return replace(changed, splits=(masks,) if given else None)


class NodeSplit(BaseShuffleSplit):  # type: ignore[misc]
    """Random splits with a few training labels of each class; all other labels test.

    Stratified folds train on most of the nodes. Node classification is usually about few labels,
    which this splitter draws for ``cross_val_score`` and the like. Unlabelled nodes (-1) are in
    neither part.

    Args:
        labels_per_class: Number of training labels of each class.
        n_splits: Number of splits.
        random_state: Seed of the splits.

    Example:
        >>> from vepm.estimators import NodeSplit
        >>> y = [0, 0, 0, 1, 1, -1]
        >>> [(len(train), len(test)) for train, test in NodeSplit(1, n_splits=2).split(y, y)]
        [(2, 3), (2, 3)]
    """

    def __init__(
        self,
        labels_per_class: int = 20,
        n_splits: int = 5,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        if labels_per_class < 1 or n_splits < 1:
            raise InputError("labels_per_class and n_splits must be at least 1")
        super().__init__(n_splits, random_state=random_state)
        self.labels_per_class = labels_per_class

    def _iter_indices(self, X: Any, y: Any, groups: None = None) -> Iterator[tuple[Any, Any]]:
        labels, _ = encode(y, len(X), lambda i: f"y[{i}]", "y")
        per_class = self.labels_per_class
        for seed in check_random_state(self.random_state).randint(2**31, size=self.n_splits):
            train, _, test = draw_split(labels, per_class=per_class, num_val=0, seed=int(seed))
            if not test.any():
                none = f"with {per_class} labels per class none is left to test on"
                raise InputError(f"{none}; take fewer")
            yield torch.where(train)[0].numpy(), torch.where(test)[0].numpy()
