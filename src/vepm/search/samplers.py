"""Which settings to try next: drawn at random, or by Optuna from the trials so far."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vepm.errors import InputError
from vepm.search.log import Row, Trial
from vepm.search.space import Dimension, Space, Values

if TYPE_CHECKING:
    import optuna

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

    Args:
        space: the settings to vary.
        base: all settings that the first trial has.
        seed: of the search.
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
        with _quiet():
            study = optuna.create_study(sampler=sampler, pruner=pruner, direction="maximize")
        study.add_trials([self._known(trial) for trial in trials])
        dimensions = self.space.dimensions if trials else ()
        self._trial = study.ask({d.name: _distribution(d) for d in dimensions})
        changes: dict[str, Any] = {}
        for d in dimensions:
            value = self._trial.params[d.name]
            changes |= d.sets(d.choices[value] if d.choices else value)
        return changes

    def is_hopeless(self, reached: float, run: int, epoch: int) -> bool:
        """Whether the trial asked for last should end here.

        Args:
            reached: mean validation accuracy of its runs, so far as they have come.
            run: index of the run.
            epoch: epoch of that run.
        """
        assert self._trial is not None
        self._trial.report(reached, run * STEPS_PER_RUN + epoch)
        return self._trial.should_prune()

    def _known(self, trial: Trial) -> "optuna.trial.FrozenTrial":
        import optuna

        values = {**self.base, **trial.changes}
        found = {d.name: (d, d.find(values)) for d in self.space.dimensions}
        held = {name: pair for name, pair in found.items() if pair[1] is not None}
        complete = trial.state == "complete"
        states = optuna.trial.TrialState
        return optuna.create_trial(
            state=states.COMPLETE if complete else states.PRUNED,
            value=trial.val_accuracy if complete else None,
            params={
                name: d.choices.index(value) if d.choices else value
                for name, (d, value) in held.items()
            },
            distributions={name: _distribution(d) for name, (d, _) in held.items()},
            intermediate_values=dict(_reports(trial.rows)),
        )


def _reports(rows: Sequence[Row]) -> Iterator[tuple[int, float]]:
    """What was reported to the pruner while the runs of a trial went on."""
    for run, row in enumerate(rows):
        finished = [before["val_accuracy"] for before in rows[:run]]
        for place, best in enumerate(row.get("reached", ())):
            step = run * STEPS_PER_RUN + EPOCHS_BETWEEN_REPORTS * (place + 1)
            yield step, float(np.mean([*finished, best]))


def _distribution(dimension: Dimension) -> "optuna.distributions.BaseDistribution":
    from optuna import distributions

    if dimension.choices:
        # Indices, because a choice may be a table.
        return distributions.CategoricalDistribution(range(len(dimension.choices)))
    low, high, log = dimension.low, dimension.high, dimension.log
    if dimension.whole:
        return distributions.IntDistribution(int(low), int(high), log=log)
    return distributions.FloatDistribution(low, high, log=log)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from logging that a study was made."""
    logger = logging.getLogger("optuna")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
