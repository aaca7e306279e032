"""Search for better settings of VEPM on data in memory: trials, and which to run next."""

import hashlib
import importlib.metadata
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vepm.data import Dataset
from vepm.data.canonical import is_sparse
from vepm.errors import DivergedError, InputError
from vepm.files import parse_json, write_text
from vepm.runs import describe_machine
from vepm.schema import read
from vepm.search.space import Space, Values, flat
from vepm.tasks import UNLABELLED
from vepm.training import Config, fit

if TYPE_CHECKING:
    import optuna

RULE = (
    "the trial of highest validation accuracy (each seed at its best epoch, mean over seeds), "
    "then lowest validation loss; test labels were removed before the search"
)
STARTUP_TRIALS = 6  # at random, the default included, before the sampler learns from them


@dataclass(frozen=True)
class Trial:
    """A setting and how it did: its scores, means over its runs, and why it was refused."""

    changes: dict[str, Any]  # none in the first, the setting to improve on
    val_accuracy: float
    val_loss: float
    seconds: float = 0.0
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What to improve, on what, and how far to search."""

    dataset: Dataset  # all labels but those that train or validate are removed
    train: Tensor  # indices of what is learned from
    val: Tensor  # indices of what settings are chosen by
    config: Config  # the settings to improve on, which trial 0 has
    space: Space
    trials: int = 20
    seeds: int = 1  # trainings of each trial
    sampler_seed: int = 0

    def __post_init__(self) -> None:
        if not self.train.numel() or not self.val.numel():
            raise InputError(
                f"{self.dataset.name}: no {self.dataset.task}s to train or to validate on; tuning "
                "needs labels to learn from and others to choose by"
            )
        kept = torch.cat([self.train, self.val])
        labels = torch.full_like(self.dataset.labels, UNLABELLED)
        labels[kept] = self.dataset.labels[kept]
        object.__setattr__(self, "dataset", self.dataset.with_labels(labels))

    @property
    def about(self) -> dict[str, Any]:
        """All that must be the same for a search to continue; no test label is part of it."""
        read = ("x", "edge_index", "edge_weight", "y")
        tensors = [graph[name] for graph in self.dataset.graphs for name in read if name in graph]
        return {
            "dataset": self.dataset.name,
            "task": self.dataset.task,
            "data": _digest([*tensors, self.train, self.val]),
            "settings": self.config.to_dict(),
            "space": {dimension.name: dimension.to_dict() for dimension in self.space},
            "seeds": self.seeds,
            "sampler_seed": self.sampler_seed,
        }

    def next_trial(self, trials: Sequence[Trial], device: str) -> Trial:
        """Train what should be tried after these trials, once with each seed.

        A setting that cannot be trained has lost. The one to improve on may diverge, but must be
        possible.
        """
        changes = suggest(self.space, flat(self.config), self.sampler_seed, trials)
        parts: dict[str, Any] = {"train_on": self.train, "validate_on": self.val, "device": device}
        started = time.perf_counter()
        try:
            config = self.config.replace(**changes)
            runs = [fit(self.dataset, config, **parts, seed=seed) for seed in range(self.seeds)]
        except InputError as error:
            if not trials and not isinstance(error, DivergedError):
                raise
            return Trial(changes, 0.0, 0.0, refused=str(error))
        accuracy, loss = (
            fmean(r.best[name] for r in runs) for name in ("val_accuracy", "val_loss")
        )
        return Trial(changes, accuracy, loss, time.perf_counter() - started)


def _digest(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(repr(tuple(tensor.shape)).encode())
        parts = (tensor.indices(), tensor.values()) if is_sparse(tensor) else (tensor,)
        for part in parts:
            digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()


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


def read_trials(path: Path, about: dict[str, Any]) -> list[Trial]:
    """The trials in the log of a search; refused if it is not a log, or of another search."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    try:
        head, *rows = [parse_json(line) for line in lines] or [{"search": about}]
        trials = [read(Trial, row, "trial") for row in rows]
        found = dict(head["search"])
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: not the log of a search ({error}); remove it") from None
    if other := [name for name in about | found if found.get(name) != about.get(name)]:
        raise InputError(
            f"{path}: holds a search with other {', '.join(other)}; choose another with --output, "
            "or remove it to start again"
        )
    return trials


def summarise(tuning: Tuning, trials: Sequence[Trial], command: str) -> dict[str, Any]:
    """What a reader of the best settings should know."""
    best = min(trials, key=lambda t: (bool(t.refused), -t.val_accuracy, t.val_loss))
    default, found = (
        {"trial": trials.index(t), "val_accuracy": t.val_accuracy, "val_loss": t.val_loss}
        for t in (trials[0], best)
    )
    refused = sum(bool(trial.refused) for trial in trials)
    return {
        "dataset": tuning.dataset.name,
        "task": tuning.dataset.task,
        "rule": RULE,
        "seeds": list(range(tuning.seeds)),
        "num_val": tuning.val.numel(),
        "default": default,
        "best": found | {"changes": best.changes},
        "improvement": best.val_accuracy - trials[0].val_accuracy,
        "trials": {"asked": tuning.trials, "finished": len(trials), "refused": refused},
        "seconds": sum(trial.seconds for trial in trials),
        "sampler_seed": tuning.sampler_seed,
        "command": command,
        "versions": describe_machine() | {"optuna": importlib.metadata.version("optuna")},
    }


def tune(
    tuning: Tuning,
    folder: Path,
    *,
    timeout: float | None = None,
    device: str = "auto",
    told: Callable[[int, int, str], None] | None = None,
    command: str = "",
) -> dict[str, Any]:
    """Search for settings of higher validation accuracy; returns the summary.

    A search that was stopped continues with the trials in its folder, which count towards those
    asked for; on one machine and device it ends as if it had not been stopped. After ``timeout``
    seconds no trial begins but the first.
    """
    end = time.monotonic() + (math.inf if timeout is None else timeout)
    # As it is read from JSON.
    about, path = json.loads(json.dumps(tuning.about)), folder / "trials.jsonl"
    trials, summary, reached = read_trials(path, about), {}, ""
    while True:
        if trials:
            lines = [{"search": about, "rule": RULE}, *map(asdict, trials)]
            write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
            summary = summarise(tuning, trials, command)
            best = tuning.config.replace(**summary["best"]["changes"])
            write_text(folder / "best.toml", best.to_toml())
            write_text(folder / "summary.json", json.dumps(summary, indent=1))
            reached = f"best validation {summary['best']['val_accuracy']:.4f}"
        if told is not None:
            told(len(trials), tuning.trials, reached)
        if trials and (len(trials) >= tuning.trials or time.monotonic() >= end):
            return summary
        trials.append(tuning.next_trial(trials, device))
