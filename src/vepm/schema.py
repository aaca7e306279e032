"""Dataclasses as schemas: types, bounds and choices of fields, and errors that name the field.

Settings, experiment files and search spaces are all read through here::

    @dataclass(frozen=True)
    class Noise:
        passes: int = checked(1, low=1, high=64)
        kind: str = checked("normal", choices=("normal", "uniform"))

    read(Noise, {"passes": 2}, "noise.toml")  # Noise(passes=2, kind="normal")
    read(Noise, {"pases": 2}, "noise.toml")   # InputError: ... did you mean passes?
"""

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
    Without a default the field is required.
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
        no_default = field.default is field.default_factory is dataclasses.MISSING
        if no_default and name not in values:
            raise InputError(f"{where}: {name} is missing")
        if name in values:
            check_value(field, values[name], where)
    return kind(**values)


def check(instance: Any, where: str) -> None:
    """Refuse a dataclass with a value that its fields do not allow."""
    for field in dataclasses.fields(instance):
        check_value(field, getattr(instance, field.name), where)


def check_value(field: dataclasses.Field[Any], value: Any, where: str) -> None:
    """Refuse a value that a field does not allow; the error names both."""
    if not is_of_type(value, field.type):
        plain = typing.get_origin(field.type) is None
        kind = getattr(field.type, "__name__", "") if plain else str(field.type)
        raise InputError(f"{where}: {field.name} must be of type {kind}, got {value!r}")
    choices = field.metadata.get("choices", ())
    if choices and value not in choices:
        known = ", ".join(choices)
        raise InputError(f"{where}: {field.name} must be one of {known}, got {value!r}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        bounds = field.metadata.get("bounds", {})
        # An integer can be too large to be compared as a float.
        finite = isinstance(value, int) or math.isfinite(value)
        if not (finite and all(_BOUNDS[name][0](value, n) for name, n in bounds.items())):
            words = " and ".join(f"{_BOUNDS[name][1]} {n}" for name, n in bounds.items())
            words = "a number " + (words or "that is finite")
            if {"low", "high"} <= bounds.keys():
                words = f"between {bounds['low']} and {bounds['high']}"
            raise InputError(f"{where}: {field.name} must be {words}, got {value}")


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
    if origin in (typing.Union, types.UnionType):
        return any(is_of_type(value, option) for option in typing.get_args(kind))
    if kind in (None, type(None)):
        return value is None
    if kind is Any:
        return True
    if origin is not None:
        inside = [part for part in typing.get_args(kind) if part is not ...][-1]
        values = value.values() if isinstance(value, Mapping) else value
        return isinstance(value, origin) and all(is_of_type(item, inside) for item in values)
    # A bool is an int to Python, and a whole number will do for a float.
    return type(value) is kind or (type(value), kind) == (int, float)
