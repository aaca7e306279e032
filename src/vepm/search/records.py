"""What is known of each trial, and which one is best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optuna

COMPLETE, PRUNED, REFUSED = "complete", "pruned", "refused"


@dataclass(frozen=True)
class Record:
    """A trial that is over."""

    number: int
    """Place among the trials that are over; 0 is the settings to improve on."""
    state: str
    """``complete``; ``pruned``, stopped early as hopeless; ``refused``, could not be trained."""
    val_accuracy: float | None
    """Mean over seeds of the best epoch's; of a pruned trial, what it had reached."""
    val_loss: float | None
    """Mean over seeds at those epochs; only of a complete trial."""
    changes: Mapping[str, Any]
    """The settings that the space decided."""
    epochs: int = 0
    seconds: float = 0.0
    note: str = ""
    """Why it was refused."""


def best_of(records: Sequence[Record]) -> Record | None:
    """The complete trial of highest accuracy; of several, that of lowest loss; then the first.

    Example:
        >>> tied = [Record(0, "complete", 0.8, 0.7, {}), Record(1, "complete", 0.8, 0.6, {})]
        >>> best_of([*tied, Record(2, "pruned", 0.9, None, {})]).number
        1
    """
    complete = [record for record in records if record.state == COMPLETE]
    return max(complete, key=_score) if complete else None


def _score(record: Record) -> tuple[float, float]:
    assert record.val_accuracy is not None
    assert record.val_loss is not None
    return record.val_accuracy, -record.val_loss


def records_of(study: "optuna.Study") -> list[Record]:
    """The trials of a study that are over, in order."""
    from optuna.trial import TrialState

    over = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return [_record(number, trial) for number, trial in enumerate(over)]


def abandoned_in(study: "optuna.Study") -> int:
    """How many trials a stop or a kill cut short; each was begun anew."""
    from optuna.trial import TrialState

    return len(study.get_trials(deepcopy=False, states=(TrialState.FAIL,)))


def _record(number: int, trial: "optuna.trial.FrozenTrial") -> Record:
    known = trial.user_attrs
    note = known.get("note", "")
    done = trial.state.name == "COMPLETE"
    return Record(
        number,
        COMPLETE if done else REFUSED if note else PRUNED,
        None if note else trial.value,
        known.get("val_loss"),
        dict(trial.params),
        known.get("epochs", 0),
        known.get("seconds", 0.0),
        note,
    )
