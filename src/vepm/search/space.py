"""Which settings are searched, over which values, and which to try next."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vepm.errors import InputError
from vepm.files import read_toml
from vepm.search.log import Row, Trial
from vepm.training import Config

if TYPE_CHECKING:
    import optuna

SPACES = Path(__file__).parent / "spaces"
HOW = "give a list of values, or low and high and perhaps log = true"
DRAWS_PER_SETTING = 100
STARTUP_TRIALS = 6
"""Trials at random, the default included, before the sampler learns from them."""
TRIALS_BEFORE_PRUNING = 4
EPOCHS_BEFORE_PRUNING = 30
EPOCHS_BETWEEN_REPORTS = 5
STEPS_PER_RUN = 2**20
"""Steps of the pruner set apart for each run of a trial: more than there can be epochs."""
SAMPLERS = {
    "random": "drawn at random",
    "tpe": f"Optuna's TPE after {STARTUP_TRIALS} trials at random",
}
PRUNER = (
    f"below the median at the same epoch, after {TRIALS_BEFORE_PRUNING} complete trials and "
    f"{EPOCHS_BEFORE_PRUNING} epochs"
)

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
        """The entry of a space from which it is read."""
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
    def from_dict(cls, entries: Mapping[str, Any], check: Check | None = None) -> "Space":
        """Read for each setting a list of values, {"choices": [...]}, or {"low", "high", "log"}.

        ``check`` applies changes to the method whose settings they are, VEPM by default.
        """
        check = check or (lambda changes: flat(Config().replace(**changes)))
        return cls(tuple(_dimension(name, entry, check) for name, entry in entries.items()))

    @property
    def names(self) -> list[str]:
        """Every setting that is varied."""
        sets = [d.sets(value) for d in self.dimensions for value in d.choices or (None,)]
        return list(dict.fromkeys(name for settings in sets for name in settings))

    def to_dict(self) -> dict[str, Any]:
        """Entries by the name of the setting."""
        return {dimension.name: dimension.to_dict() for dimension in self.dimensions}


def flat(config: Config) -> dict[str, Any]:
    """All settings by name."""
    return {name: v for section in config.to_dict().values() for name, v in section.items()}


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
    where = f"search space: {name}"
    if isinstance(entry, list):
        entry = {"choices": entry}
    if not isinstance(entry, Mapping):
        raise InputError(f"{where} is {entry!r}; {HOW}")
    if set(entry) == {"choices"}:
        values = entry["choices"]
        if not isinstance(values, list) or not values:
            raise InputError(f"{where} needs a list of values")
        dimension = Dimension(name, choices=tuple(values))
        for value in values:
            check(dimension.sets(value))
        return dimension
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
        for dimension in space.dimensions:
            changes |= dimension.sets(dimension.draw(rng))
        drawn.setdefault(json.dumps(changes, sort_keys=True), changes)
    return list(drawn.values())


def require_optuna() -> None:
    """Say how to get Optuna where it is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError("tuning needs Optuna; install it with: pip install 'vepm[tune]'") from None


class TPE:
    """Optuna's sampler and pruner, asked anew for every trial.

    Everything it knows comes from the trials in the log, and its seed from how many there are: a
    search that was killed suggests what it would have suggested otherwise.
    """

    def __init__(self, space: Space, base: Values, seed: int) -> None:
        require_optuna()
        self.space, self.base, self.seed = space, base, seed
        self._trial: optuna.Trial | None = None

    def suggest(self, trials: Sequence[Trial]) -> dict[str, Any]:
        """The changes to try after these trials; none at first."""
        import optuna

        digest = hashlib.blake2b(f"{self.seed}/{len(trials)}".encode(), digest_size=4).digest()
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=STARTUP_TRIALS, seed=int.from_bytes(digest, "little")
        )
        pruner = optuna.pruners.MedianPruner(TRIALS_BEFORE_PRUNING, EPOCHS_BEFORE_PRUNING)
        logger = logging.getLogger("optuna")
        level = logger.level
        # It would log that a study was made.
        logger.setLevel(logging.WARNING)
        study = optuna.create_study(sampler=sampler, pruner=pruner, direction="maximize")
        logger.setLevel(level)
        study.add_trials([self._known(trial) for trial in trials])
        dimensions = self.space.dimensions if trials else ()
        self._trial = study.ask({d.name: d.distribution() for d in dimensions})
        changes: dict[str, Any] = {}
        for d in dimensions:
            value = self._trial.params[d.name]
            changes |= d.sets(d.choices[value] if d.choices else value)
        return changes

    def is_hopeless(self, reached: float, run: int, epoch: int) -> bool:
        """Whether the trial asked for last should end, given its mean accuracy at an epoch."""
        assert self._trial is not None
        self._trial.report(reached, run * STEPS_PER_RUN + epoch)
        return self._trial.should_prune()

    def _known(self, trial: Trial) -> "optuna.trial.FrozenTrial":
        import optuna

        values = {**self.base, **trial.changes}
        found = [(d, d.find(values)) for d in self.space.dimensions]
        held = [(d, value) for d, value in found if value is not None]
        complete = trial.state == "complete"
        states = optuna.trial.TrialState
        return optuna.create_trial(
            state=states.COMPLETE if complete else states.PRUNED,
            value=trial.val_accuracy if complete else None,
            params={d.name: d.choices.index(v) if d.choices else v for d, v in held},
            distributions={d.name: d.distribution() for d, _ in held},
            intermediate_values=dict(_reports(trial.rows)),
        )


def _reports(rows: Sequence[Row]) -> Iterator[tuple[int, float]]:
    """What was reported to the pruner while the runs of a trial went on."""
    for run, row in enumerate(rows):
        finished = [before["val_accuracy"] for before in rows[:run]]
        for place, best in enumerate(row.get("reached", ())):
            step = run * STEPS_PER_RUN + EPOCHS_BETWEEN_REPORTS * (place + 1)
            yield step, float(np.mean([*finished, best]))
