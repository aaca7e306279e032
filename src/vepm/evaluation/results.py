"""What one training run leaves behind."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from vepm.errors import InputError
from vepm.schema import is_of_type, read

Curve = dict[str, list[float]]


@dataclass(frozen=True)
class RunResult:
    """One method on one split with one seed, with the whole curve behind its number.

    Args:
        method: name of the method.
        dataset: name of the dataset.
        split: name of the split.
        seed: seed of the run.
        curve: per epoch ``val_accuracy``, ``val_loss``, ``test_accuracy`` and ``train_loss``;
            lists without entries where there is no such thing. Methods that do not train in
            epochs have one.
        best_epoch: index into the curve, chosen on validation, or the last where nothing validates.
        val_accuracy: at that epoch; None where nothing validates.
        test_accuracy: at that epoch.
        seconds: wall time of the run.
        settings: everything the method was told.
        measures: of the test part at that epoch, as :meth:`vepm.tasks.Task.measures` gives them;
            of VEPM also ``sampled_accuracy``, by the mean over draws of the affiliations.

    Example:
        >>> from vepm.evaluation import RunResult
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
        val = curve.get("val_accuracy", [])
        best = choose_epoch(val, curve.get("val_loss")) if val else len(curve["test_accuracy"]) - 1
        return cls(
            method=method,
            dataset=dataset,
            split=split,
            seed=seed,
            curve=curve,
            best_epoch=best,
            val_accuracy=val[best] if val else None,
            test_accuracy=curve["test_accuracy"][best],
            seconds=seconds,
            settings=dict(settings or {}),
            measures=dict(measures or {}),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The result that :meth:`to_dict` wrote.

        Raises:
            InputError: if a field is missing, unknown, or of another type.
        """
        # Results of earlier versions have no measures.
        found = read(cls, {"measures": {}, **values}, "result of a run")
        lengths = {len(values) for values in found.curve.values() if values}
        known = "test_accuracy" in found.curve and len(lengths) == 1
        if not known or not 0 <= found.best_epoch < max(lengths):
            raise InputError("result of a run: the curves do not have the same epochs")
        if not is_of_type(found.measures.get("sampled_accuracy", 0.0), float):
            raise InputError("result of a run: sampled_accuracy is no number")
        return found


def choose_epoch(accuracy: Sequence[float], loss: Sequence[float] | None = None) -> int:
    """The epoch of best accuracy; of several, that of lowest loss if given; then the first.

    Example:
        >>> from vepm.evaluation import choose_epoch
        >>> choose_epoch([0.5, 0.9, 0.9]), choose_epoch([0.5, 0.9, 0.9], [1.0, 0.7, 0.6])
        (1, 2)
    """
    best = max(accuracy)
    tied = [epoch for epoch, value in enumerate(accuracy) if value == best]
    return min(tied, key=lambda epoch: loss[epoch]) if loss else tied[0]
