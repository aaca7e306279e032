"""Which settings are searched, over which values, and which to try next."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vepm.errors import InputError
from vepm.files import read_toml
from vepm.search.log import Trial
from vepm.training import Config

if TYPE_CHECKING:
    import optuna

SPACES = Path(__file__).parent / "spaces"  # those that come with the package, by task
HOW = "give a list of values, or low and high and perhaps log = true"
DRAWS_PER_SETTING = 100
STARTUP_TRIALS = 6
"""Trials at random, the default included, before the sampler learns from them."""
SAMPLERS = {
    "random": "drawn at random",
    "tpe": f"Optuna's TPE after {STARTUP_TRIALS} trials at random",
}

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

    def to_dict(self) -> dict[str, Any]:
        """As the log of a search names it."""
        if self.choices:
            return {"choices": list(self.choices)}
        return {"low": self.low, "high": self.high, "log": self.log}

    def distribution(self) -> "optuna.distributions.BaseDistribution":
        """The same for Optuna; choices by their indices, because a choice may be a table."""
        from optuna import distributions

        if self.choices:
            return distributions.CategoricalDistribution(range(len(self.choices)))
        if self.whole:
            return distributions.IntDistribution(int(self.low), int(self.high), log=self.log)
        return distributions.FloatDistribution(self.low, self.high, log=self.log)


Space = tuple[Dimension, ...]
"""The settings that a search varies."""


def parse_space(entries: Mapping[str, Any], check: Check) -> Space:
    """Read for each setting a list of values, or {"low", "high", "log"}.

    ``check`` applies changes to the method whose settings they are.
    """
    return tuple(_dimension(name, entry, check) for name, entry in entries.items())


def flat(config: Config) -> dict[str, Any]:
    """All settings by name."""
    return {name: v for section in config.to_dict().values() for name, v in section.items()}


def read_space(path: Path) -> dict[str, Any]:
    """The entries of a space for VEPM, one per setting, from a TOML file, all of them checked."""
    entries = read_toml(path)
    try:
        if not entries:
            raise InputError("search space: no setting to vary; name at least one")
        parse_space(entries, lambda changes: flat(Config().replace(**changes)))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return entries


def _dimension(name: str, entry: Any, check: Check) -> Dimension:
    where = f"search space: {name}"
    if isinstance(entry, list):
        if not entry:
            raise InputError(f"{where} needs a list of values")
        dimension = Dimension(name, choices=tuple(entry))
        for value in entry:
            check(dimension.sets(value))
        return dimension
    if not isinstance(entry, Mapping):
        raise InputError(f"{where} is {entry!r}; {HOW}")
    if not {"low", "high"} <= set(entry) <= {"low", "high", "log"}:
        raise InputError(f"{where} has {', '.join(entry) or 'nothing'}; {HOW}")
    low, high, log = entry["low"], entry["high"], entry.get("log", False)
    for end in (low, high):
        check({name: end})
        if isinstance(end, bool) or not isinstance(end, int | float):
            raise InputError(f"{where} is no number; give a list of values")
    if low > high:
        raise InputError(f"{where} has low {low} above high {high}")
    if not isinstance(log, bool) or (log and low <= 0):
        raise InputError(f"search space: log of {name} must be true or false, and low above 0")
    whole = type(check({}).get(name)) is int
    return Dimension(name, low=low, high=high, log=log, whole=whole)


def random_changes(space: Space, count: int, seed: int) -> list[dict[str, Any]]:
    """Distinct settings at random; the first changes nothing.

    There are fewer if the space does not seem to hold as many.
    """
    rng = np.random.default_rng(seed)
    drawn: dict[str, dict[str, Any]] = {"{}": {}}
    for _ in range(DRAWS_PER_SETTING * count):
        if len(drawn) >= count:
            break
        changes: dict[str, Any] = {}
        for dimension in space:
            changes |= dimension.sets(dimension.draw(rng))
        drawn.setdefault(json.dumps(changes, sort_keys=True), changes)
    return list(drawn.values())


def require_optuna() -> None:
    """Say how to get Optuna where it is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError("tuning needs Optuna; install it with: pip install 'vepm[tune]'") from None


def suggest(space: Space, base: Values, seed: int, trials: Sequence[Trial]) -> dict[str, Any]:
    """The changes that Optuna's TPE would try after these trials; none at first.

    Everything it knows comes from the trials in the log, and its seed from how many there are: a
    search that was killed suggests what it would have suggested otherwise.
    """
    require_optuna()
    if not trials:
        return {}
    import optuna

    digest = hashlib.blake2b(f"{seed}/{len(trials)}".encode(), digest_size=4).digest()
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=STARTUP_TRIALS, seed=int.from_bytes(digest, "little")
    )
    logger = logging.getLogger("optuna")
    level = logger.level
    # It would log that a study was made.
    logger.setLevel(logging.WARNING)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    logger.setLevel(level)
    study.add_trials([_known(space, base, trial) for trial in trials])
    drawn = study.ask({d.name: d.distribution() for d in space}).params
    changes: dict[str, Any] = {}
    for d in space:
        changes |= d.sets(d.choices[drawn[d.name]] if d.choices else drawn[d.name])
    return changes


def _known(space: Space, base: Values, trial: Trial) -> "optuna.trial.FrozenTrial":
    import optuna

    values = {**base, **trial.changes}
    held = [(d, value) for d in space if (value := d.find(values)) is not None]
    states = optuna.trial.TrialState
    return optuna.create_trial(
        state=states.PRUNED if trial.refused else states.COMPLETE,
        value=None if trial.refused else trial.val_accuracy,
        params={d.name: d.choices.index(v) if d.choices else v for d, v in held},
        distributions={d.name: d.distribution() for d, _ in held},
    )
