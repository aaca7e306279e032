"""Which settings are searched, and over which values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vepm.errors import InputError
from vepm.files import read_toml
from vepm.training import Config

SPACES = Path(__file__).parent / "spaces"
HOW = "give a list of values, or low and high and perhaps log = true"

Values = Mapping[str, Any]
Check = Callable[[Values], Values]
"""From changes to all settings of a method; raises InputError if they cannot be made."""


@dataclass(frozen=True)
class Dimension:
    """One setting and the values it may take: choices, or a range with both ends.

    A choice that is a table sets several settings at once; the name then only labels it.
    """

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    log: bool = False
    """Whether a range is searched on a logarithmic scale."""
    whole: bool = False
    """Whether a range holds whole numbers only."""

    def draw(self, rng: np.random.Generator) -> Any:
        """A value at random."""
        if self.choices:
            return self.choices[int(rng.integers(len(self.choices)))]
        if self.whole and not self.log:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        if not self.log:
            return float(rng.uniform(self.low, self.high))
        found = float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        return round(found) if self.whole else min(max(found, self.low), self.high)

    def sets(self, value: Any) -> dict[str, Any]:
        """The settings that a value decides."""
        return value if isinstance(value, dict) else {self.name: value}

    def find(self, values: Values) -> Any:
        """The value that gives these settings; None if the dimension does not hold it."""
        for choice in self.choices:
            if all(name in values and values[name] == v for name, v in self.sets(choice).items()):
                return choice
        found = None if self.choices else values[self.name]
        return found if found is not None and self.low <= found <= self.high else None


@dataclass(frozen=True)
class Space:
    """The settings that a search varies.

    Example:
        >>> space = Space.from_dict({"dropout": {"low": 0.2, "high": 0.8}, "bank_layers": [1, 2]})
        >>> [dimension.find({"dropout": 0.5, "bank_layers": 3}) for dimension in space.dimensions]
        [0.5, None]
    """

    dimensions: tuple[Dimension, ...]

    @classmethod
    def from_dict(cls, entries: Any, check: Check | None = None) -> "Space":
        """Read entries by the name of the setting.

        Args:
            entries: for each setting a list of values, ``{"choices": [...]}``, or ``{"low": ...,
                "high": ..., "log": ...}``.
            check: applies changes to the method whose settings they are; VEPM by default.

        Raises:
            InputError: if there is no such setting, or it cannot take such values.
        """
        if not isinstance(entries, Mapping):
            raise InputError("search space: not a table of settings and their values")
        check = check or vepm_values
        return cls(tuple(_dimension(name, entry, check) for name, entry in entries.items()))

    @property
    def names(self) -> list[str]:
        """Every setting that is varied."""
        sets = [d.sets(value) for d in self.dimensions for value in d.choices or (None,)]
        return list(dict.fromkeys(name for settings in sets for name in settings))

    def to_dict(self) -> dict[str, Any]:
        """Entries by the name of the setting."""
        return {
            d.name: {"choices": list(d.choices)}
            if d.choices
            else {"low": d.low, "high": d.high, "log": d.log}
            for d in self.dimensions
        }


def flat(config: Config) -> dict[str, Any]:
    """All settings by name."""
    return {name: v for section in config.to_dict().values() for name, v in section.items()}


def vepm_values(changes: Values) -> dict[str, Any]:
    """All settings of VEPM after some changes to its defaults."""
    return flat(Config().replace(**changes))


def default_space(task: str) -> Space:
    """The space that comes with the package for a ``"node"`` or ``"graph"`` task."""
    return read_space(SPACES / f"{task}.toml")


def read_space(path: Path) -> Space:
    """A space from a TOML file with one entry per setting."""
    entries = read_toml(path)
    try:
        if not entries:
            raise InputError("search space: no setting to vary; name at least one")
        return Space.from_dict(entries)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _dimension(name: str, entry: Any, check: Check) -> Dimension:
    if isinstance(entry, list):
        entry = {"choices": entry}
    if not isinstance(entry, Mapping):
        raise InputError(f"search space: {name} is {entry!r}; {HOW}")
    if set(entry) == {"choices"}:
        values = entry["choices"]
        if not isinstance(values, list) or not values:
            raise InputError(f"search space: {name} needs a list of values")
        dimension = Dimension(name, choices=tuple(values))
        for value in values:
            check(dimension.sets(value))
        return dimension
    if {"low", "high"} <= set(entry) <= {"low", "high", "log"}:
        return _range(name, entry["low"], entry["high"], entry.get("log", False), check)
    raise InputError(f"search space: {name} has {', '.join(entry) or 'nothing'}; {HOW}")


def _range(name: str, low: Any, high: Any, log: Any, check: Check) -> Dimension:
    for end in (low, high):
        check({name: end})
        if isinstance(end, bool) or not isinstance(end, int | float):
            raise InputError(f"search space: {name} is no number; give a list of values")
    if low > high:
        raise InputError(f"search space: {name} has low {low} above high {high}")
    if not isinstance(log, bool) or (log and low <= 0):
        raise InputError(f"search space: log of {name} must be true or false, and low above 0")
    whole = type(check({}).get(name)) is int
    return Dimension(name, low=low, high=high, log=log, whole=whole)
