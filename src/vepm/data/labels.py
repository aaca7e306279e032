"""Labels and splits, as users give them, to class indices and masks."""

import logging
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, UNLABELLED, Masks

logger = logging.getLogger("vepm")

Where = Callable[[int], str]


def encode(
    labels: Any, count: int, where: Where, source: str, class_names: Sequence[str] | None = None
) -> tuple[Tensor, tuple[str, ...]]:
    """Class indices of labels given as integers or as text, and the names of the classes.

    -1 and empty cells are unlabelled. Labels that are all numbers must be integers; classes are
    sorted numerically or else alphabetically. Given ``class_names`` keep their order, and integers
    are indices into them if some name is not an integer.
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
    numbers = array.dtype.kind in "biuf"
    # Adding 0 makes False and True the classes 0 and 1.
    cells = array.reshape(-1) + 0 if numbers else array.reshape(-1)
    if not numbers:
        texts = (v.decode(errors="replace") if isinstance(v, bytes) else v for v in cells)
        cells = np.array(["" if v is None else str(v).strip() for v in texts], dtype=object)
    values, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
    words, known = [str(value) for value in values.tolist()], class_names
    if numbers and known is not None and not all(map(str.isdecimal, known)):
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
    indices = torch.tensor([index[word] for word in words], dtype=torch.long)
    return indices[torch.from_numpy(inverse)], tuple(class_names or ())


def is_number(cell: Any) -> bool:
    """Whether a cell of a table is a number, as text or not, or a vector of numbers."""
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


def item_masks(
    given: Mapping[str, object], labelled: Tensor, source: str
) -> tuple[Masks, tuple[Masks, ...] | None]:
    """The masks of the first split, and of all if there are several, among labelled nodes.

    Those given are [N], or [N, R] for R splits. Without a ``train_mask`` all labelled nodes outside
    the other masks are for training.
    """
    columns, count = {}, labelled.numel()
    for name in (name for name in MASK_NAMES if given.get(name) is not None):
        found = given[name]
        mask = found.detach().cpu() if isinstance(found, Tensor) else torch.empty(0)
        if mask.dim() not in (1, 2) or len(mask) != count or mask.numel() == 0:
            shown = list(mask.shape) if isinstance(found, Tensor) else type(found).__name__
            needed = f"a tensor of one True or False per node ([{count}]) is needed"
            raise InputError(f"{source}, {name}: is {shown}; {needed}")
        if not bool(((mask == 0) | (mask == 1)).all()):
            wrong = "holds values other than 0 and 1; give a boolean mask"
            raise InputError(f"{source}, {name}: {wrong}")
        columns[name] = mask.bool().reshape(count, -1)
    widths = {mask.size(1) for mask in columns.values()} | {1}
    if len(widths - {1}) > 1:
        raise InputError(f"{source}: masks hold different numbers of splits; give the same of each")
    known = labelled[:, None].expand(-1, max(widths))
    val, test = (columns.get(name, ~known) & known for name in MASK_NAMES[1:])
    train = columns.get("train_mask", ~(val | test)) & known
    splits = tuple(zip(train.unbind(1), val.unbind(1), test.unbind(1), strict=True))
    if shared := int((splits[0][0] & (splits[0][1] | splits[0][2])).sum()):
        both = f"{shared} training nodes are also in the validation or test part"
        logger.warning("%s: %s; scores will be too high", source, both)
    return splits[0], splits if len(splits) > 1 else None
