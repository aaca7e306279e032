"""Which settings are searched, and over which values: data, not code."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vepm.errors import InputError
from vepm.files import read_toml
from vepm.training import Config
from vepm.training.config import FIELDS

if TYPE_CHECKING:
    import optuna

SPACES = Path(__file__).parent / "spaces"
HOW = "give choices = [...], or low and high and perhaps log = true"


@dataclass(frozen=True)
class Setting:
    """One setting and the values it may take: choices, or a range with both ends."""

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    log: bool = False
    """Whether a range is searched by factors instead of by differences."""

    def holds(self, value: Any) -> bool:
        """Whether the value can be suggested."""
        return value in self.choices if self.choices else bool(self.low <= value <= self.high)

    def suggest(self, trial: "optuna.Trial") -> Any:
        """A value for the trial."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        if FIELDS[self.name].type is int:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.log)

    def to_dict(self) -> dict[str, Any]:
        """The entry of the setting in a space's file."""
        if self.choices:
            return {"choices": list(self.choices)}
        return {"low": self.low, "high": self.high, "log": self.log}


@dataclass(frozen=True)
class Space:
    """The settings that a search varies.

    Example:
        >>> space = Space.from_dict({"dropout": {"low": 0.2, "high": 0.8}})
        >>> space.settings[0].holds(0.5)
        True
    """

    settings: tuple[Setting, ...]

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> "Space":
        """Read entries by the name of the setting.

        Raises:
            InputError: if there is no such setting, or it cannot take such values.
        """
        if not entries:
            raise InputError("search space: no setting to vary; name at least one")
        return cls(tuple(_setting(name, entry) for name, entry in entries.items()))

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Entries by the name of the setting."""
        return {setting.name: setting.to_dict() for setting in self.settings}


def default_space(task: str) -> Space:
    """The space that comes with the package for a ``"node"`` or ``"graph"`` task."""
    return read_space(SPACES / f"{task}.toml")


def read_space(path: Path) -> Space:
    """A space from a TOML file with one table per setting."""
    entries = read_toml(path)
    try:
        return Space.from_dict(entries)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _setting(name: str, entry: Any) -> Setting:
    if not isinstance(entry, Mapping):
        raise InputError(f"search space: {name} is no table; {HOW}")
    if set(entry) == {"choices"}:
        return _choices(name, entry["choices"])
    if {"low", "high"} <= set(entry) <= {"low", "high", "log"}:
        return _range(name, entry["low"], entry["high"], entry.get("log", False))
    raise InputError(f"search space: {name} has {', '.join(entry) or 'nothing'}; {HOW}")


def _choices(name: str, values: Any) -> Setting:
    if not isinstance(values, list) or not values:
        raise InputError(f"search space: choices of {name} must be a list of values")
    _check_values(name, values)
    return Setting(name, choices=tuple(values))


def _range(name: str, low: Any, high: Any, log: Any) -> Setting:
    _check_values(name, [low, high])
    if FIELDS[name].type not in (int, float):
        raise InputError(f"search space: {name} is no number; give choices = [...]")
    if low > high:
        raise InputError(f"search space: {name} has low {low} above high {high}")
    if not isinstance(log, bool) or (log and low <= 0):
        raise InputError(f"search space: log of {name} must be true or false, and low above 0")
    return Setting(name, low=low, high=high, log=log)


def _check_values(name: str, values: list[Any]) -> None:
    for value in values:
        Config().replace(**{name: value})
