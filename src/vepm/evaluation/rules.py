"""How curves become one number, and whether test data had a say in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vepm.errors import InputError
from vepm.evaluation.results import Curve, choose_epoch


@dataclass(frozen=True)
class Summary:
    """A mean with its spread, and the rule by which its epochs were selected.

    Args:
        rule: name of the rule.
        description: the rule in words, saying whether test data chose anything.
        values: test accuracy of each run at its selected epoch, seed by seed.
        epochs: the selected epoch of each run.
        mean: of the values.
        std: sample standard deviation of the values (n - 1); 0 for one value.
        standard_error: ``std`` over the root of n.
        n: number of values.
    """

    rule: str
    description: str
    values: tuple[float, ...]
    epochs: tuple[int, ...]
    mean: float
    std: float
    standard_error: float
    n: int


Rule = Callable[[Sequence[Curve]], Summary]


def gin(curves: Sequence[Curve]) -> Summary:
    """One epoch for all folds: the best of the mean test curve, the first of several."""
    scores = _test_matrix(curves)
    epoch = int(scores.mean(axis=0).argmax())
    return _summarise("gin", curves, [epoch] * len(curves))


def fold_max(curves: Sequence[Curve]) -> Summary:
    """Each run at the best epoch of its own test curve: optimistic by construction."""
    epochs = [choose_epoch(curve["test_accuracy"]) for curve in _filled(curves)]
    return _summarise("fold-max", curves, epochs)


def last(curves: Sequence[Curve]) -> Summary:
    """Each run at its last epoch."""
    return _summarise("last", curves, [len(c["test_accuracy"]) - 1 for c in _filled(curves)])


def capsgnn(curves: Sequence[Curve]) -> Summary:
    """Each fold at the epoch its validation fold prefers."""
    return _summarise("capsgnn", curves, _validated_epochs(curves))


def validation(curves: Sequence[Curve]) -> Summary:
    """Each run at the epoch its validation nodes prefer."""
    return _summarise("validation", curves, _validated_epochs(curves))


RULES: dict[str, Rule] = {
    "gin": gin,
    "fold-max": fold_max,
    "last": last,
    "capsgnn": capsgnn,
    "validation": validation,
}
"""Selection rules by name: from the curves of all runs to a summary."""

DESCRIPTIONS: dict[str, str] = {
    "gin": "one epoch for all folds of a seed, the best of their mean; the scored folds chose it",
    "fold-max": "the best epoch of each fold; each scored fold chose its own epoch (optimistic)",
    "last": "the last epoch; nothing was chosen on test data",
    "capsgnn": "each fold's epoch chosen on its validation fold; nothing was chosen on test data",
    "validation": "each run's epoch chosen on validation; nothing was chosen on test data",
}
"""Each rule in words."""


def _filled(curves: Sequence[Curve]) -> Sequence[Curve]:
    if not curves or not all(curve["test_accuracy"] for curve in curves):
        raise InputError("no runs, or runs without epochs, to summarise")
    return curves


def _test_matrix(curves: Sequence[Curve]) -> np.ndarray:
    lengths = {len(curve["test_accuracy"]) for curve in _filled(curves)}
    if len(lengths) > 1:
        raise InputError(
            f"rule 'gin' needs runs of equal length, and these have {sorted(lengths)} epochs; "
            "train without early stopping or use another rule"
        )
    return np.array([curve["test_accuracy"] for curve in curves])


def _validated_epochs(curves: Sequence[Curve]) -> list[int]:
    if not all(curve.get("val_accuracy") for curve in _filled(curves)):
        raise InputError(
            "these runs have no validation curve; use rule 'gin', 'fold-max' or 'last'"
        )
    return [choose_epoch(curve["val_accuracy"], curve.get("val_loss")) for curve in curves]


def _summarise(rule: str, curves: Sequence[Curve], epochs: Sequence[int]) -> Summary:
    values = [c["test_accuracy"][epoch] for c, epoch in zip(curves, epochs, strict=True)]
    return _summary(rule, values, epochs)


def joined(summaries: Sequence[Summary]) -> Summary:
    """One summary of all runs of several by the same rule."""
    values = [value for summary in summaries for value in summary.values]
    epochs = [epoch for summary in summaries for epoch in summary.epochs]
    return _summary(summaries[0].rule, values, epochs)


def _summary(rule: str, values: Sequence[float], epochs: Sequence[int]) -> Summary:
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Summary(
        rule=rule,
        description=DESCRIPTIONS[rule],
        values=tuple(values),
        epochs=tuple(epochs),
        mean=float(np.mean(values)),
        std=std,
        standard_error=std / len(values) ** 0.5,
        n=len(values),
    )
