"""From labels as people write them to class indices."""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vepm.data.dataset import Dataset, listed_names
from vepm.errors import InputError
from vepm.tasks import UNLABELLED

Where = Callable[[int], str] | None  # names a label in messages


def encode(
    labels: Any, count: int, where: Where, source: str, class_names: Sequence[str] | None = None
) -> tuple[Tensor, tuple[str, ...]]:
    """Class indices of labels given as integers or as text, and the names of the classes.

    -1 and empty mean unlabelled. Labels that are all numbers must be integers; classes are in
    numerical or else alphabetical order. Known classes stay as they are, and integers are indices
    of them if they have names that are not integers.
    """
    if labels is None:
        return torch.full((count,), UNLABELLED), tuple(class_names or ())
    if isinstance(labels, Tensor):
        # NumPy lacks some of the types of PyTorch.
        labels = (labels.double() if labels.is_floating_point() else labels).detach().cpu()
    array: NDArray[Any] = np.asarray(labels)
    if array.shape not in ((count,), (count, 1)) or array.dtype.kind not in "biufOUS":
        found = f"labels are {array.dtype} of shape {list(array.shape)}"
        raise InputError(f"{source}: {found}; one integer or text each ([{count}]) is needed")
    cells, numbers = array.reshape(-1), array.dtype.kind in "biuf"
    if not numbers:
        texts = (v.decode(errors="replace") if isinstance(v, bytes) else v for v in cells)
        cells = np.array(["" if v is None else str(v).strip() for v in texts], dtype=object)
    values, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
    # Adding 0 makes False and True the classes 0 and 1.
    words = [str(value + 0) if numbers else value for value in values.tolist()]
    known = class_names
    if numbers and known is not None and not all(map(str.isdecimal, known)):
        known = [str(i) for i in range(len(known))]
    # A fitted model may have classes "01" and "cat"; then "01" is a name here too.
    as_integers = all(is_number(word) for word in (*words, *(known or ())) if word)
    places = [where(i) if where else f"{source}, label {i}" for i in first.tolist()]
    if as_integers:
        words = [_integer_text(word, at) for word, at in zip(words, places, strict=True)]
    if known is None:
        known = class_names = sorted(set(words) - {""}, key=int if as_integers else None)
    index = {name: i for i, name in enumerate(known)} | {"": UNLABELLED}
    for word, at in zip(words, places, strict=True):
        if word not in index:
            shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            raise InputError(f"{at}: label '{word[:40]}' is none of the known classes ({shown})")
    indices = torch.tensor([index[word] for word in words], dtype=torch.long)
    return indices[torch.from_numpy(inverse)], tuple(class_names or ())


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
    try:
        number = int(word or UNLABELLED)
    except ValueError:
        number = int(float(word)) if float(word).is_integer() else UNLABELLED - 1
    if number < UNLABELLED:
        remedy = "label classes with integers or names, and leave unlabelled ones empty or -1"
        raise InputError(f"{at}: label '{word[:40]}' is not an integer from 0; {remedy}")
    return "" if number == UNLABELLED else str(number)


def require_labels(dataset: Dataset) -> None:
    """Refuse a dataset with no labels, or labels of one class: no classifier can learn from it."""
    if dataset.num_classes < 2:
        labels = f"labels of its {dataset.task}s: {listed_names(list(dataset.class_names))}"
        raise InputError(
            f"{dataset.name}: {labels}; classification needs at least two classes (-1 and empty "
            "cells mean unlabelled); name their column with --label, or detect communities"
        )
