"""Which settings are searched, and over which values."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vepm.errors import InputError
from vepm.files import read_toml
from vepm.training import Config

SPACES = Path(__file__).parent / "spaces"  # those that come with the package, by task
HOW = (
    "give a list of values, or numbers low and high, low no larger than high, and perhaps "
    "log = true, where low must be above 0"
)

Values = Mapping[str, Any]
Check = Callable[[Values], Values]
"""From changes to all settings of a method; raises InputError if they cannot be made."""


class Dimension(NamedTuple):
    """One setting and the values it may take: choices, or a range with both ends."""

    name: str  # only a label where choices are tables, which set several settings at once
    distribution: Any  # Optuna's, of the values, or of the indices of the choices
    choices: tuple[Any, ...] = ()

    def sets(self, drawn: Any) -> dict[str, Any]:
        """The settings that a value, or the index of a choice, decides."""
        value = self.choices[drawn] if self.choices else drawn
        return value if isinstance(value, dict) else {self.name: value}

    def find(self, values: Values) -> Any:
        """The value or index that gives these settings; None if the dimension does not hold it."""
        for index in range(len(self.choices)):
            if self.sets(index).items() <= values.items():
                return index
        found = None if self.choices else values[self.name]
        held = found is not None and self.distribution.low <= found <= self.distribution.high
        return found if held else None

    def to_dict(self) -> dict[str, Any]:
        """The dimension as the log of a search records it."""
        if self.choices:
            return {"choices": list(self.choices)}
        return {name: getattr(self.distribution, name) for name in ("low", "high", "log")}


Space = tuple[Dimension, ...]  # the settings that a search varies


def parse_space(entries: Values, check: Check) -> Space:
    """Read for each setting of a method a list of values, or {"low", "high", "log"}."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError("tuning needs Optuna; install it with: pip install 'vepm[tune]'") from None
    return tuple(_dimension(name, entry, check) for name, entry in entries.items())


def flat(config: Config) -> dict[str, Any]:
    """All settings by name."""
    return {name: v for section in config.to_dict().values() for name, v in section.items()}


def read_space(path: Path, config: Config) -> Space:
    """A space of settings of VEPM from a TOML file, all of it checked as changes to some."""
    entries = read_toml(path)
    try:
        if not entries:
            raise InputError("search space: no setting to vary; name at least one")
        return parse_space(entries, lambda changes: flat(config.replace(**changes)))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _dimension(name: str, entry: Any, check: Check) -> Dimension:
    from optuna import distributions

    if isinstance(entry, list) and entry:
        indices = distributions.CategoricalDistribution(range(len(entry)))
        dimension = Dimension(name, indices, tuple(entry))
        for index in range(len(entry)):
            check(dimension.sets(index))
        return dimension
    names = set(entry) if isinstance(entry, Mapping) else set()
    if not {"low", "high"} <= names <= {"low", "high", "log"}:
        raise InputError(f"search space: {name} is {entry!r}; {HOW}")
    low, high, log = entry["low"], entry["high"], entry.get("log", False)
    check({name: low})
    check({name: high})
    numbers = {type(low), type(high)} <= {int, float} and type(log) is bool
    if not numbers or low > high or (log and low <= 0):
        raise InputError(f"search space: {name} is {entry!r}; {HOW}")
    whole = type(check({}).get(name)) is int
    kind = distributions.IntDistribution if whole else distributions.FloatDistribution
    return Dimension(name, kind(low, high, log=log))
