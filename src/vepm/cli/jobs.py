"""A training as commands run it: its data and settings checked, followed, written to a folder."""

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vepm import console, training
from vepm.baselines import Baseline, baseline
from vepm.cli.folders import command_line
from vepm.cli.options import Choice, Machine, Reading
from vepm.data import Dataset, datasets, is_recipe, load, read, require_labels
from vepm.errors import InputError, TrainingWarning
from vepm.estimators import CLASSIFIERS, Estimator, unlabelled
from vepm.evaluation import Split
from vepm.files import parse_toml, read_toml
from vepm.report import write_report
from vepm.runs import write_run
from vepm.scale.ddp import ProcessGroup
from vepm.training import Config, Explanation, Fitted, ModelCard, Progress, pick_device
from vepm.training.fitting import NONE

logger = logging.getLogger("vepm")

SPLIT_SEED = 0  # own graphs are split once and for all, whatever the seed of the run


def open_data(name: str, data_dir: Path | None, reading: Reading, **known: Any) -> Dataset:
    """A dataset by name, or a user's own by path; a bare name that is both is the dataset."""
    path = own_path(name, data_dir)
    if path is not None:
        return read(path, **reading.arguments(), **known)
    if replace(reading, strict=False) != Reading():
        raise InputError(
            f"{name}: --label, --features, --drop, --no-weights and --directed are for data of "
            "your own; this is a known set"
        )
    return load(name, data_dir)


def own_path(name: str, data_dir: Path | None) -> Path | None:
    """The user's own file or folder that a name stands for, if it does."""
    if is_recipe(name):
        return None
    path = Path(name)
    own = os.sep in name or bool(path.suffix)
    if not own and path.exists():
        own = name.lower() not in {info.name.lower() for info in datasets(data_dir)}
    return path if own else None


def settings(dataset: Dataset, preset: str, file: Path | None, pairs: list[str] | None) -> Config:
    """A preset, changed by a TOML file, changed by ``name=value`` pairs."""
    config = training.preset(preset, dataset.task, dataset.name)
    if file is not None:
        config = config.updated(read_toml(file))
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}: write it as name=value")
        try:
            parsed = parse_toml(f"value = {value}")["value"]
        except ValueError:
            parsed = value
        config = config.replace(**{name.strip(): parsed})
    return config


def check_model(dataset: Dataset, config: Config, device: str) -> None:
    """Refuse settings of which no model can be made, and devices that are not there."""
    pick_device(device)
    ModelCard.of(dataset, config).num_weights()


def roles(dataset: Dataset) -> dict[str, Tensor]:
    """Indices of the nodes or graphs that train, validate and test.

    The dataset's own split is used where it has one; what is missing is drawn from the
    training labels: a fifth to validate and, if there is no test part at all, a fifth to test.
    """
    y = dataset.labels
    none = torch.zeros_like(y, dtype=torch.bool)
    masks = dataset.masks or (y >= 0, none, none)
    train, val, test = ((mask & (y >= 0)).nonzero().flatten() for mask in masks)
    if train.numel() == 0:
        raise InputError(
            f"{dataset.name}: no labelled {dataset.task} is there to train on; mark some as train"
        )
    if test.numel() == 0:
        train, test = training.set_aside(train, y, SPLIT_SEED)
    if val.numel() == 0:
        train, val = training.set_aside(train, y, SPLIT_SEED)
    return {"train": train, "val": val, "test": test}


def own_split(dataset: Dataset, parts: Mapping[str, Tensor]) -> Split:
    """The parts of a dataset as one split, which must have something to score."""
    if parts["test"].numel() == 0:
        raise InputError(
            f"{dataset.name}: too few labels to set any aside for the test; label more "
            f"{dataset.task}s or mark some as test"
        )
    return Split("own", parts["train"], parts["val"], parts["test"])


def chosen_baseline(name: str, dataset: Dataset, device: str) -> Baseline:
    """A baseline by name, fit for the dataset's task."""
    method = baseline(name, dataset.name, device=str(pick_device(device)))
    method.check(dataset)
    say_unweighted(dataset, [name])
    return method


def say_unweighted(dataset: Dataset, baselines: list[str]) -> None:
    """Say that baselines see the edges alone, where these have weights."""
    if dataset.weighted and baselines:
        logger.warning(
            "%s: not used by %s: the weights of edges", dataset.name, ", ".join(baselines)
        )


@dataclass(frozen=True, eq=False)
class Job:
    """A training that has passed every check."""

    data: Dataset
    learned: Dataset  # the data as they are learned from: without labels, where none are needed
    parts: dict[str, Tensor]  # indices of the nodes or graphs that train, validate and test
    estimator: Any
    inputs: tuple[Path | None, ...]  # the user's own files, which must stay as they are
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

    def score(self, peer: Baseline, seed: int) -> dict[str, Any]:
        """How a baseline does with the same labels."""
        found = peer(self.data, own_split(self.data, self.parts), seed)
        measures = {f"test_{name}": value for name, value in found.measures.items()}
        return {"test_accuracy": found.test_accuracy, **measures}

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
    data = open_data(name, machine.data_dir, reading)
    if kind is None:
        require_labels(data)
        kind, learned, parts = CLASSIFIERS[data.task], data, roles(data)
    else:
        if not data.single_graph:
            raise InputError(
                f"{data.name}: holds many graphs, and this takes one; `vepm train` shows "
                "communities inside labelled graphs"
            )
        learned, parts = unlabelled(data), dict.fromkeys(("train", "val", "test"), NONE)
    config = settings(data, choice.preset, choice.config, choice.pairs)
    estimator = kind(config=config, random_state=choice.seed, device=machine.device, **parameters)
    check_model(learned, estimator.settings(), machine.device)
    paths = (own_path(name, machine.data_dir), choice.config)
    return Job(data, learned, parts, estimator, paths, not machine.no_memory_check)


def number_or_auto(text: str | None) -> int | str | None:
    """A number of communities as it was given, or ``"auto"``."""
    if text is None or text == "auto":
        return text
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InputError(f"--communities {text}: give a number of at least 1, or auto")
    return int(text)
