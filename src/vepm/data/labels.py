"""From what people write as labels to class indices.

One rule everywhere: labels are names or integers; -1 and empty mean unlabelled. If all labels of a
set are numbers, they must be integers, and the classes are in numerical order; else the classes are
in alphabetical order.
"""

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vepm.errors import InputError
from vepm.tasks import UNLABELLED

_INTEGER = re.compile(r"[+-]?[0-9]+")
_REMEDY = "label classes with integers from 0 or with names, and leave unlabelled ones empty or -1"

Where = Callable[[int], str]


def encode_text(
    values: Sequence[str], where: Where, class_names: Sequence[str] | None = None
) -> tuple[Tensor, tuple[str, ...]]:
    """Class indices of labels written as text.

    Args:
        values: one label each; an empty string means unlabelled.
        where: says in words where the i-th label stands, for messages.
        class_names: the known classes, in order; found from the labels if not given.

    Returns:
        The class indices [len(values)], -1 where unlabelled, and the class names.
    """
    values = [value.strip() for value in values]
    # Classes of a fitted model may have names such as "01" beside "cat": then "01" is a name here.
    known = () if class_names is None else class_names
    numeric = all(_is_number(value) for value in (*values, *known) if value)
    if numeric:
        values = [_integer_text(value, where, i) if value else "" for i, value in enumerate(values)]
    found = {value for value in values if value}
    if class_names is None:
        class_names = sorted(found, key=int) if numeric else sorted(found)
    index = {name: i for i, name in enumerate(class_names)} | {"": UNLABELLED}
    for i, value in enumerate(values):
        if value not in index:
            raise InputError(f"{where(i)}: {_unknown(value, class_names)}")
    return torch.tensor([index[v] for v in values], dtype=torch.long), tuple(class_names)


def encode_integers(
    labels: Tensor, source: str, class_names: Sequence[str] | None = None
) -> tuple[Tensor, tuple[str, ...]]:
    """Class indices of integer labels [M]; -1 is unlabelled.

    If the known classes have names that are not integers, the labels are indices of them.
    """
    classes = labels[labels != UNLABELLED].unique()
    found = [str(c) for c in classes.tolist()]
    names = tuple(found if class_names is None else class_names)
    are_integers = all(_INTEGER.fullmatch(name) for name in names)
    index = {name if are_integers else str(i): i for i, name in enumerate(names)}
    for value in found:
        if value not in index:
            raise InputError(f"{source}: {_unknown(value, names)}")
    # The extra last entry is where the -1 of unlabelled positions lands.
    table = torch.tensor([index[value] for value in found] + [UNLABELLED], dtype=torch.long)
    position = torch.searchsorted(classes, labels.contiguous())
    position[labels == UNLABELLED] = len(found)
    return table[position], names


def as_integers(labels: Tensor, source: str) -> Tensor:
    """Labels [M] as int64, refusing any that are not whole numbers of at least -1."""
    if labels.is_floating_point():
        bad = (~torch.isfinite(labels) | (labels != labels.round())).nonzero()
        if bad.numel():
            i = int(bad[0])
            raise InputError(
                f"{source}: label {float(labels[i]):g} at position {i} is not an integer; {_REMEDY}"
            )
    elif labels.is_complex():
        raise InputError(f"{source}: labels are complex numbers; {_REMEDY}")
    labels = labels.long()
    if labels.numel() and int(labels.min()) < UNLABELLED:
        raise InputError(f"{source}: label {int(labels.min())} is negative; {_REMEDY}")
    return labels


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _integer_text(value: str, where: Where, i: int) -> str:
    if _INTEGER.fullmatch(value):
        number = int(value)
    elif float(value).is_integer():
        number = int(float(value))
    else:
        raise InputError(f"{where(i)}: label '{value}' is a number but not an integer; {_REMEDY}")
    if number < UNLABELLED:
        raise InputError(f"{where(i)}: label '{value}' is negative; {_REMEDY}")
    return "" if number == UNLABELLED else str(number)


def _unknown(value: str, class_names: Sequence[str]) -> str:
    shown = ", ".join(class_names[:8]) + (", ..." if len(class_names) > 8 else "")
    return f"label '{value}' is none of the known classes ({shown})"
