"""Dataclasses as schemas: types, bounds and choices of fields, and errors that name the field."""

import dataclasses
import difflib
import math
import operator
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from vepm.errors import InputError

T = TypeVar("T")
_BOUNDS = {
    "low": (operator.ge, "at least"),
    "high": (operator.le, "at most"),
    "above": (operator.gt, "above"),
    "below": (operator.lt, "below"),
}
FEW = 12  # the most names that an error lists
LARGEST_SEED = 2**32 - 1  # the largest seed that PyTorch, NumPy and scikit-learn all take
MOST_RUNS = 10_000  # seeds or splits of one measurement; more is a mistake


def checked(
    default: Any = dataclasses.MISSING, *, choices: Iterable[str] = (), **bounds: float
) -> Any:
    """A dataclass field with bounds or choices, which :func:`check` enforces.

    Values are at least ``low``, at most ``high``, larger than ``above`` and smaller than ``below``.
    Without a default the field is required: ``kind: str = checked(choices=("normal", "uniform"))``.
    """
    if bounds.keys() - _BOUNDS:
        raise TypeError(f"bounds are {', '.join(_BOUNDS)}, not {', '.join(bounds)}")
    metadata = {"bounds": bounds, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=metadata)


def fields_of(*kinds: type) -> dict[str, dataclasses.Field[Any]]:
    """Fields of some dataclasses by name."""
    return {field.name: field for kind in kinds for field in dataclasses.fields(kind)}


def read(kind: type[T], values: Any, where: str) -> T:
    """A dataclass from a table of plain values, all checked; errors begin with ``where``."""
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: {values!r} is not a table of keys and values")
    fields = fields_of(kind)
    for name in values:
        if name not in fields:
            raise unknown(name, fields, where)
    for name, field in fields.items():
        if name in values:
            check_value(field, values[name], where)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise InputError(f"{where}: {name} is missing")
    return kind(**values)


def check(instance: Any, where: str) -> None:
    """Refuse a dataclass with a value that its fields do not allow."""
    for field in dataclasses.fields(instance):
        check_value(field, getattr(instance, field.name), where)


def check_value(field: dataclasses.Field[Any], value: Any, where: str) -> None:
    """Refuse a value that a field does not allow; the error names both."""
    bounds, choices = (field.metadata.get(key, {}) for key in ("bounds", "choices"))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # An integer can be too large to be compared as a float.
    finite = not isinstance(value, float) or math.isfinite(value)
    if not is_of_type(value, field.type):
        plain = typing.get_origin(field.type) is None
        wanted = f"of type {getattr(field.type, '__name__', '') if plain else field.type}"
    elif choices and value not in choices:
        wanted = f"one of {', '.join(choices)}"
    elif number and not (finite and all(_BOUNDS[key][0](value, n) for key, n in bounds.items())):
        words = " and ".join(f"{_BOUNDS[key][1]} {n}" for key, n in bounds.items())
        wanted = f"a number {words or 'that is finite'}"
        if {"low", "high"} <= bounds.keys():
            wanted = f"between {bounds['low']} and {bounds['high']}"
    else:
        return
    raise InputError(f"{where}: {field.name} must be {wanted}, got {value!r}")


def unknown(name: str, known: Iterable[str], where: str) -> InputError:
    """The error for a name that does not exist, with the closest one that does."""
    names = list(known)
    close = difflib.get_close_matches(str(name), names)
    hint = f"; did you mean {close[0]}?" if close else ""
    if not close and len(names) <= FEW:
        hint = f"; there are {', '.join(names)}"
    return InputError(f"{where}: there is no {name!r}{hint}")


def is_of_type(value: Any, kind: Any) -> bool:
    """Whether a plain value is of a type, such as those of a dataclass's fields."""
    origin = typing.get_origin(kind)
    if kind is Any or (kind in (None, type(None)) and value is None):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(is_of_type(value, option) for option in typing.get_args(kind))
    if origin is not None:
        inside = [part for part in typing.get_args(kind) if part is not ...][-1]
        values = value.values() if isinstance(value, Mapping) else value
        return isinstance(value, origin) and all(is_of_type(item, inside) for item in values)
    # A bool is an int to Python, and a whole number will do for a float.
    return type(value) is kind or (type(value), kind) == (int, float)
