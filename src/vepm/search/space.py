"""Which settings are searched, over which values, and which to try next."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vepm.errors import InputError
from vepm.files import read_toml
from vepm.training import Config

if TYPE_CHECKING:
    import optuna

SPACES = Path(__file__).parent / "spaces"  # those that come with the package, by task
HOW = (
    "give a list of values, or numbers low and high, low no larger than high, and perhaps "
    "log = true, where low must be above 0"
)
STARTUP_TRIALS = 6  # at random, the default included, before the sampler learns from them

Values = Mapping[str, Any]
Check = Callable[[Values], Values]
"""From changes to all settings of a method; raises InputError if they cannot be made."""


@dataclass(frozen=True)
class Trial:
    """A setting and how it did: its scores, means over its runs, and why it was refused."""

    changes: dict[str, Any]  # none in the first, the setting to improve on
    val_accuracy: float
    val_loss: float
    seconds: float = 0.0
    refused: str = ""


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
        """As the log of a search names it."""
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


def suggest(space: Space, base: Values, seed: int, trials: Sequence[Trial]) -> dict[str, Any]:
    """The changes that Optuna's TPE would try after these trials, also in another process."""
    if not trials:
        return {}
    import optuna

    digest = hashlib.blake2b(f"{seed}/{len(trials)}".encode(), digest_size=4).digest()
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=STARTUP_TRIALS, seed=int.from_bytes(digest, "little")
    )
    verbosity = optuna.logging.get_verbosity()
    # It would log that a study was made.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    optuna.logging.set_verbosity(verbosity)
    study.add_trials([_known(space, base, trial) for trial in trials])
    drawn = study.ask({d.name: d.distribution for d in space}).params
    return {name: v for d in space for name, v in d.sets(drawn[d.name]).items()}


def _known(space: Space, base: Values, trial: Trial) -> "optuna.trial.FrozenTrial":
    import optuna

    found = [(d, d.find({**base, **trial.changes})) for d in space]
    held = [(d, value) for d, value in found if value is not None]
    states = optuna.trial.TrialState
    return optuna.create_trial(
        state=states.PRUNED if trial.refused else states.COMPLETE,
        value=None if trial.refused else trial.val_accuracy,
        params={d.name: value for d, value in held},
        distributions={d.name: d.distribution for d, _ in held},
    )
