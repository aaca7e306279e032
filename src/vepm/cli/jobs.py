"""A training as commands run it: checked, followed epoch by epoch, written to a folder."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vepm import console
from vepm.cli import inputs
from vepm.cli.folders import command_line
from vepm.cli.options import Choice, Machine, Reading
from vepm.data import Dataset, require_labels
from vepm.errors import InputError, TrainingWarning
from vepm.estimators import CLASSIFIERS, Estimator, unlabelled
from vepm.report import write_report
from vepm.runs import write_run
from vepm.scale.ddp import ProcessGroup
from vepm.training import Explanation, Fitted, Progress
from vepm.training.fitting import NONE


@dataclass(frozen=True, eq=False)
class Job:
    """A training that has passed every check."""

    data: Dataset
    learned: Dataset
    """The data as they are learned from: without labels, where none are needed."""
    parts: dict[str, Tensor]
    """Indices of the nodes or graphs that train, validate and test."""
    estimator: Any
    inputs: tuple[Path, ...]
    """The user's own files, which must stay as they are."""
    check_memory: bool

    @contextlib.contextmanager
    def followed(self, *others: Progress) -> Iterator[None]:
        """Show the epochs of a training; the console shows its warnings later."""
        with console.epoch_bar() as bar, warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)

            def tell(*epoch: Any) -> None:
                for listener in filter(None, (bar, *others)):
                    listener(*epoch)

            self.estimator.set_params(progress=tell)
            yield

    def fit(self, checkpoint: Path, *others: Progress, group: ProcessGroup | None = None) -> Fitted:
        """Train, or continue from the checkpoint, alone or with other processes."""
        with self.followed(*others):
            return self.estimator.fit_split(
                self.learned,
                self.parts["train"],
                self.parts["val"],
                checkpoint=checkpoint,
                group=group,
                check_memory=self.check_memory,
            )

    def write(
        self, folder: Path, fitted: Fitted, extra: Any, explained: Explanation | None = None
    ) -> dict[str, Any]:
        """Write the files of a run and its page; gives the metrics, which have the extra ones."""
        extra = {**extra, "command": command_line()}
        metrics = write_run(folder, self.data, fitted, self.parts, extra, explained)
        write_report(folder)
        return metrics


def prepare(
    kind: type[Estimator] | None,
    name: str,
    choice: Choice,
    reading: Reading,
    machine: Machine,
    **parameters: Any,
) -> Job:
    """A training that needs no labels or, where no estimator is named, of a classifier, checked."""
    data = inputs.open_data(name, machine.data_dir, reading)
    if kind is None:
        require_labels(data)
        kind, learned, parts = CLASSIFIERS[data.task], data, inputs.roles(data)
    else:
        if not data.single_graph:
            raise InputError(
                f"{data.name}: holds many graphs, and this takes one; `vepm train` shows "
                "communities inside labelled graphs"
            )
        learned, parts = unlabelled(data), dict.fromkeys(("train", "val", "test"), NONE)
    config = inputs.settings(data, choice.preset, choice.config, choice.pairs)
    estimator = kind(config=config, random_state=choice.seed, device=machine.device, **parameters)
    inputs.check_model(learned, estimator.settings(), machine.device)
    paths = inputs.given_paths(name, machine.data_dir, choice.config)
    return Job(data, learned, parts, estimator, paths, not machine.no_memory_check)


def number_or_auto(text: str | None) -> int | str | None:
    """A number of communities as it was given, or ``"auto"``."""
    if text is None or text == "auto":
        return text
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InputError(f"--communities {text}: give a number of at least 1, or auto")
    return int(text)
