"""Optuna's part: trials kept in a file, suggestions that depend on finished trials alone."""

import contextlib
import errno
import hashlib
import json
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vepm.errors import InputError

if TYPE_CHECKING:
    import optuna

STARTUP_TRIALS = 6
"""Trials at random, the default included, before the sampler learns from them."""
TRIALS_BEFORE_PRUNING = 4
EPOCHS_BEFORE_PRUNING = 30
SAMPLER = f"Optuna's TPE after {STARTUP_TRIALS} trials at random"
PRUNER = (
    f"below the median at the same epoch, after {TRIALS_BEFORE_PRUNING} complete trials and "
    f"{EPOCHS_BEFORE_PRUNING} epochs"
)


def require_optuna() -> None:
    """Say how to get Optuna where it is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError("tuning needs Optuna; install it with: pip install 'vepm[tune]'") from None


@contextmanager
def opened_study(path: Path, identity: dict[str, Any]) -> Iterator["optuna.Study"]:
    """The study kept in a file, made if there is none.

    Args:
        path: An SQLite file; every change is on the disk before the next begins.
        identity: What the study is about, as JSON would have it.

    Raises:
        InputError: if the file is damaged, or its study is about something else.
    """
    require_optuna()
    import optuna

    path.parent.mkdir(parents=True, exist_ok=True)
    with _quiet(), _storage(path) as storage:
        study = optuna.create_study(
            storage=storage,
            study_name="vepm",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(TRIALS_BEFORE_PRUNING, EPOCHS_BEFORE_PRUNING),
        )
        _check_identity(path, study, identity)
        _give_up_unfinished(study)
        yield study


def next_trial(
    study: "optuna.Study", finished: int, seed: int, defaults: dict[str, Any]
) -> "optuna.Trial":
    """The trial after the finished ones, of which the first tries the defaults.

    The sampler is made anew for every trial, seeded by the number of finished ones: a search
    that was killed suggests what it would have suggested had it not been.
    """
    import optuna

    if finished == 0 and not study.get_trials(states=(optuna.trial.TrialState.WAITING,)):
        study.enqueue_trial(defaults)
    digest = hashlib.blake2b(f"{seed}/{finished}".encode(), digest_size=4).digest()
    study.sampler = optuna.samplers.TPESampler(
        n_startup_trials=STARTUP_TRIALS,
        multivariate=False,
        seed=int.from_bytes(digest, "little"),
    )
    return study.ask()


@contextmanager
def _storage(path: Path) -> Iterator["optuna.storages.RDBStorage"]:
    from optuna.exceptions import StorageInternalError
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    # The file is opened by path: one in an address would stumble over odd characters.
    connect = {"creator": lambda: sqlite3.connect(path, check_same_thread=False)}
    try:
        storage = RDBStorage("sqlite:///trials", engine_kwargs=connect)
    except (SQLAlchemyError, StorageInternalError, RuntimeError):
        raise InputError(
            f"{path}: not a readable record of trials; remove it or choose another folder"
        ) from None
    try:
        yield storage
    except (SQLAlchemyError, StorageInternalError) as error:
        reason = str(getattr(error, "orig", None) or error.__cause__ or error)
        kind = errno.ENOSPC if "full" in reason else errno.EIO
        raise OSError(kind, os.strerror(kind) + f" ({reason.splitlines()[0]})", str(path)) from None
    finally:
        with contextlib.suppress(SQLAlchemyError):
            storage.remove_session()
        storage.engine.dispose()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from logging every step: the command has its own way of showing them."""
    logger = logging.getLogger("optuna")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def _check_identity(path: Path, study: "optuna.Study", identity: dict[str, Any]) -> None:
    wanted = json.loads(json.dumps(identity))
    found = study.user_attrs.get("identity")
    if found is None:
        study.set_user_attr("identity", wanted)
        return
    other = [name for name in wanted if found.get(name) != wanted[name]]
    if other:
        raise InputError(
            f"{path.parent}: holds a search with other {', '.join(other)}; choose another folder "
            "with --output, or start anew with --overwrite"
        )


def _give_up_unfinished(study: "optuna.Study") -> None:
    """A trial that was under way when its process died is as if it had never begun."""
    import optuna

    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
