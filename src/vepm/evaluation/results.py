"""The result of a run, how its epoch is selected, and whether test data influenced that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from statistics import fmean
from typing import Any, NamedTuple, Self

import numpy as np

from vepm.errors import InputError
from vepm.schema import is_of_type, read

Curve = dict[str, list[float]]
SHOWN = ("split", "seed", "val_accuracy", "test_accuracy", "best_epoch", "seconds")


@dataclass(frozen=True)
class RunResult:
    """One method on one split with one seed, with the whole curve behind its number.

    Args:
        curve: per epoch ``val_accuracy``, ``val_loss``, ``test_accuracy`` and ``train_loss``, empty
            where there is none. Methods that do not train in epochs have one.
        best_epoch: index into the curve, chosen on validation, or the last where nothing validates;
            accuracies and measures are those at that epoch.
        measures: of the test part, as :func:`vepm.measures.class_measures` gives; of VEPM also
            ``sampled_accuracy``, by the mean over draws of the affiliations.

    Example:
        >>> curve = {"val_accuracy": [0.5, 0.9], "test_accuracy": [0.6, 0.8]}
        >>> result = RunResult.from_curve("gcn", "Cora", "public", 0, curve)
        >>> result.best_epoch, result.test_accuracy
        (1, 0.8)
    """

    method: str
    dataset: str
    split: str
    seed: int
    curve: Curve
    best_epoch: int
    val_accuracy: float | None
    test_accuracy: float
    seconds: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)
    measures: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_curve(
        cls,
        method: str,
        dataset: str,
        split: str,
        seed: int,
        curve: Curve,
        seconds: float = 0.0,
        settings: Mapping[str, Any] | None = None,
        measures: Mapping[str, Any] | None = None,
    ) -> Self:
        """A result whose epoch is chosen on the validation part of the curve alone."""
        val, test = curve.get("val_accuracy", []), curve["test_accuracy"]
        best = choose_epoch(val, curve.get("val_loss")) if val else len(test) - 1
        found = curve, best, val[best] if val else None, test[best], seconds
        return cls(method, dataset, split, seed, *found, dict(settings or {}), dict(measures or {}))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The result that :meth:`to_dict` wrote; an InputError if it is none."""
        # Results of earlier versions have no measures.
        found = read(cls, {"measures": {}, **values}, "result of a run")
        lengths = {len(values) for values in found.curve.values() if values}
        known = "test_accuracy" in found.curve and len(lengths) == 1
        drawn = found.measures.get("sampled_accuracy", 0.0)
        if not known or not 0 <= found.best_epoch < max(lengths) or not is_of_type(drawn, float):
            raise InputError("result of a run: curves of unequal length, or a measure is no number")
        return found


def choose_epoch(accuracy: Sequence[float], loss: Sequence[float] | None = None) -> int:
    """The epoch of best accuracy; ties go to the lowest loss, if given, and then to the first.

    Example:
        >>> choose_epoch([0.5, 0.9, 0.9]), choose_epoch([0.5, 0.9, 0.9], [1.0, 0.7, 0.6])
        (1, 2)
    """
    return min(range(len(accuracy)), key=lambda e: (-accuracy[e], loss[e] if loss else 0))


@dataclass(frozen=True)
class Summary:
    """A mean with its spread, and the rule by which its epochs were selected.

    Args:
        description: the rule in words, saying whether test data chose anything.
        values: test accuracy of each run at its selected epoch, seed by seed.
        std: sample standard deviation of the n values (n - 1); 0 for one value.
        standard_error: of the mean. Runs of one split under several seeds are not independent:
            where there are several splits, it is clustered by split.
    """

    rule: str
    description: str
    values: tuple[float, ...]
    epochs: tuple[int, ...]
    mean: float
    std: float
    standard_error: float
    n: int

    @classmethod
    def of(
        cls,
        rule: str,
        description: str,
        values: Sequence[float],
        epochs: Sequence[int] = (),
        splits: Sequence[str] = (),
    ) -> Self:
        """The summary of some values; of runs on several splits, with the split of each."""
        n, mean, std, error = len(values), float(np.mean(values)), 0.0, 0.0
        if n > 1:
            # On a single split, the spread is that of the seeds.
            clusters = splits if len(set(splits)) > 1 else range(n)
            own = np.unique(np.asarray(clusters), return_inverse=True)[1]
            sums = np.bincount(own, np.asarray(values) - np.mean(values))
            std, count = float(np.std(values, ddof=1)), len(sums)
            error = float(np.sqrt(count / (count - 1) * np.square(sums).sum()) / n)
        return cls(rule, description, tuple(values), tuple(epochs), mean, std, error, n)


class Rule(NamedTuple):
    """A rule in words, and from the curves of the runs of one seed to the epoch of each."""

    description: str
    epochs: Callable[[Sequence[Curve]], list[int]]


def _best_of_mean(curves: Sequence[Curve]) -> list[int]:
    scores = [curve["test_accuracy"] for curve in curves]
    if len(lengths := {len(own) for own in scores}) > 1:
        raise InputError(
            f"rule 'gin' needs runs of equal length, and these have {sorted(lengths)} epochs; "
            "train without early stopping or use another rule"
        )
    return [int(np.mean(scores, axis=0).argmax())] * len(curves)


def _validated(curves: Sequence[Curve]) -> list[int]:
    if not all(curve.get("val_accuracy") for curve in curves):
        raise InputError(
            "these runs have no validation curve; use rule 'gin', 'fold-max' or 'last'"
        )
    return [choose_epoch(curve["val_accuracy"], curve.get("val_loss")) for curve in curves]


NOTHING = "nothing was chosen on test data"

RULES: dict[str, Rule] = {
    "gin": Rule(
        "one epoch for all folds of a seed, the best of their mean; the scored folds chose it",
        _best_of_mean,
    ),
    "fold-max": Rule(
        "the best epoch of each fold; each scored fold chose its own epoch (optimistic)",
        lambda curves: [choose_epoch(curve["test_accuracy"]) for curve in curves],
    ),
    "last": Rule(
        f"the last epoch; {NOTHING}",
        lambda curves: [len(curve["test_accuracy"]) - 1 for curve in curves],
    ),
    "capsgnn": Rule(f"each fold's epoch chosen on its validation fold; {NOTHING}", _validated),
    "validation": Rule(f"each run's epoch chosen on validation; {NOTHING}", _validated),
}
"""Selection rules by name."""


def summarise(results: Sequence[RunResult], rule: str) -> Summary:
    """The mean and spread of runs by a rule of :data:`RULES`; every run is one value.

    A rule that selects one epoch for all folds does so for each seed separately.
    """
    if rule not in RULES:
        raise InputError(f"no selection rule '{rule}'; there are {', '.join(RULES)}")
    if not results or not all(result.curve["test_accuracy"] for result in results):
        raise InputError("no runs, or runs without epochs, to summarise")
    by_seed = [[r for r in results if r.seed == s] for s in dict.fromkeys(r.seed for r in results)]
    chosen = [RULES[rule].epochs([run.curve for run in own]) for own in by_seed]
    runs, epochs = list(chain(*by_seed)), list(chain(*chosen))
    values = [r.curve["test_accuracy"][epoch] for r, epoch in zip(runs, epochs, strict=True)]
    return Summary.of(rule, RULES[rule].description, values, epochs, [run.split for run in runs])


def mean_measures(results: Sequence[RunResult]) -> dict[str, Any]:
    """Measures other than accuracy, averaged over the runs that have them; support is summed."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for result in results for name in result.measures):
        values = [result.measures.get(name) for result in results]
        known = [value for value in values if value is not None]
        if name != "per_class":
            found[name] = fmean(known) if known else None
            continue
        found[name] = [
            {key: (sum if key == "support" else fmean)(row[key] for row in rows) for key in rows[0]}
            for rows in zip(*known, strict=True)
        ]
    return found


def overview(results: Sequence[RunResult], rules: Sequence[str]) -> dict[str, Any]:
    """The runs of a method and their summary by each of the rules, the main one first."""
    by_rule = {rule: vars(summarise(results, rule)) for rule in rules}
    main = ("rule", "mean", "std", "standard_error", "n")
    return {
        "dataset": results[0].dataset,
        "method": results[0].method,
        **{name: by_rule[rules[0]][name] for name in main},
        "rules": by_rule,
        "measures": mean_measures(results),
        "runs": [{name: getattr(r, name) for name in SHOWN} | r.measures for r in results],
        "settings": results[0].settings,
    }
