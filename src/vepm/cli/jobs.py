"""Training runs of commands: data and settings checked, progress shown, results written."""

import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vepm import console, training
from vepm.baselines import Baseline, baseline
from vepm.cli.folders import command_line
from vepm.cli.options import Given, listed
from vepm.data import Dataset, datasets, is_recipe, load, read, require_labels
from vepm.errors import InputError, TrainingWarning
from vepm.estimators import CLASSIFIERS, Estimator, LinkPredictor, unlabelled
from vepm.evaluation import Split, protocol_for
from vepm.files import parse_toml, read_toml
from vepm.report import write_report
from vepm.runs import write_run
from vepm.scale.ddp import ProcessGroup
from vepm.training import Config, Explanation, Fitted, ModelCard, pick_device
from vepm.training.fitting import NONE

logger = logging.getLogger("vepm")

DEFAULT_SPLITS = 10
SPLIT_SEED = 0  # own graphs are split once and for all, whatever the seed of the run


def open_data(name: str, given: Given, **known: Any) -> Dataset:
    """A dataset by name, or a user's own by path; a bare name that is both is the dataset."""
    path = own_path(name, given.data_dir)
    if path is not None:
        return read(
            path,
            label=given.label,
            features=None if given.features is None else listed(given.features),
            drop=listed(given.drop or ""),
            strict=given.strict,
            weights=not given.no_weights,
            directed=given.directed,
            **known,
        )
    columns = (given.label, given.features, given.drop)
    if columns != (None, None, None) or given.no_weights or given.directed:
        of_own = "--label, --features, --drop, --no-weights and --directed are for data of your own"
        raise InputError(f"{name}: {of_own}; this is a known set")
    return load(name, given.data_dir)


def own_path(name: str, data_dir: Path | None) -> Path | None:
    """The user's own file or folder that a name stands for, or None."""
    path = Path(name)
    own = os.sep in name or bool(path.suffix)
    if not own and path.exists():
        own = name.lower() not in {info.name.lower() for info in datasets(data_dir)}
    return path if own and not is_recipe(name) else None


def parse_value(text: str) -> Any:
    """A value in TOML; anything else is text, which needs no quotes."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def settings(dataset: Dataset, given: Given) -> Config:
    """A preset, changed by a TOML file, changed by ``name=value`` pairs."""
    config = training.preset(given.preset, dataset.task, dataset.name)
    if given.config is not None:
        config = config.updated(read_toml(given.config))
    for pair in given.settings or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}: write it as name=value")
        config = config.replace(**{name.strip(): parse_value(value)})
    return config if given.batch_nodes is None else config.replace(batch_size=given.batch_nodes)


def check_model(dataset: Dataset, config: Config, device: str) -> None:
    """Refuse settings that no model can be built from, and devices that do not exist."""
    pick_device(device)
    ModelCard.of(dataset, config).num_weights()


def roles(dataset: Dataset) -> dict[str, Tensor]:
    """Indices of the nodes or graphs that train, validate and test, as the dataset splits them.

    What is missing is drawn from the training labels: a fifth to test, then one to validate.
    """
    y = dataset.labels
    none = torch.zeros_like(y, dtype=torch.bool)
    masks = dataset.masks or (y >= 0, none, none)
    train, val, test = ((mask & (y >= 0)).nonzero().flatten() for mask in masks)
    if train.numel() == 0:
        found = f"{dataset.name}: there is no labelled {dataset.task} to train on"
        raise InputError(f"{found}; mark some as train")
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
    return Split("own", **parts)


def scored_splits(
    data: Dataset, name: str, labels_per_class: int | None, splits: int | None, folds: int | None
) -> tuple[list[Split], tuple[str, ...]]:
    """Splits and selection rules of a protocol, the main rule first.

    A graph without a published test part is split as for training. Where nothing validates,
    nothing is selected and the last epoch counts.
    """
    if labels_per_class is not None:
        if name not in ("", "few-labels"):
            raise InputError(f"--labels-per-class is for few-labels, not for protocol {name}")
        name = f"few-labels-{labels_per_class}"
    few = name.startswith("few-labels")
    if splits is not None and not few:
        raise InputError("--splits counts random splits; give --labels-per-class too, or --folds")
    protocol = protocol_for(data.task, name)
    if folds is not None and protocol.name not in ("gin", "capsgnn"):
        raise InputError(f"--folds is for gin and capsgnn, not for protocol {protocol.name}")
    published = data.splits or not data.single_graph or data.graphs[0].test_mask.any()
    if protocol.name == "public" and not published:
        found = [own_split(data, roles(data))]
    else:
        found = protocol(data, num_folds=(splits if few else folds) or DEFAULT_SPLITS)
    if "validation" in protocol.rules and not all(split.val.numel() for split in found):
        return found, ("last",)
    return found, protocol.rules


def chosen_baseline(name: str, dataset: Dataset, device: str) -> Baseline:
    """A baseline by name, fit for the dataset's task."""
    method = baseline(name, dataset.name, device=str(pick_device(device)))
    method.check(dataset)
    say_unweighted(dataset, [name])
    return method


def say_unweighted(dataset: Dataset, baselines: list[str]) -> None:
    """Warn that baselines ignore the weights of edges, if there are any."""
    if dataset.weighted and baselines:
        names = ", ".join(baselines)
        logger.warning("%s: not used by %s: the weights of edges", dataset.name, names)


@dataclass(frozen=True, eq=False)
class Job:
    """A training that has passed every check."""

    data: Dataset
    learned: Dataset  # the data as they are learned from: without labels, where none are needed
    parts: dict[str, Tensor]  # indices of the nodes or graphs that train, validate and test
    estimator: Any
    inputs: tuple[Path | None, ...]  # the user's own files, which must stay as they are
    check_memory: bool

    def fit(self, checkpoint: Path, group: ProcessGroup | None = None) -> Any:
        """Train, or continue from the checkpoint; shows the epochs, and leaves warnings for later.

        Gives the fitted model; of links, the fitted estimator.
        """
        how: Any = {"checkpoint": checkpoint, "check_memory": self.check_memory}
        with console.bars() as show, warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)

            def tell(phase: str, epoch: int, epochs: int, row: dict[str, Any]) -> None:
                val = row.get("val_accuracy")
                beside = "" if val is None else f"  validation {val:.3f}"
                show(phase, epoch, epochs, f"loss {row['loss']:.3f}{beside}")

            self.estimator.set_params(progress=tell)
            if isinstance(self.estimator, LinkPredictor):
                return self.estimator.fit(self.data, **how)
            train, val = self.parts["train"], self.parts["val"]
            return self.estimator.fit_split(self.learned, train, val, group=group, **how)

    def score(self, peer: Baseline, seed: int) -> dict[str, Any]:
        """How a baseline does with the same labels."""
        found = peer(self.data, own_split(self.data, self.parts), seed)
        measures = {f"test_{name}": value for name, value in found.measures.items()}
        return {"test_accuracy": found.test_accuracy, **measures}

    def write(
        self, folder: Path, fitted: Fitted, extra: Any, explained: Explanation | None = None
    ) -> dict[str, Any]:
        """Write the files of a run and its page; returns the metrics, the extra ones included."""
        extra = {**extra, "command": command_line()}
        metrics = write_run(folder, self.data, fitted, self.parts, extra, explained)
        write_report(folder)
        return metrics


def prepare(kind: type[Estimator] | None, name: str, given: Given, **parameters: Any) -> Job:
    """A checked training: of an estimator without labels, or of a classifier if none is named."""
    data = open_data(name, given)
    if kind is None:
        require_labels(data)
        kind, learned, parts = CLASSIFIERS[data.task], data, roles(data)
    else:
        if not data.single_graph:
            found = f"{data.name}: holds many graphs, and this takes one"
            raise InputError(f"{found}; `vepm train` shows communities inside labelled graphs")
        learned, parts = unlabelled(data), dict.fromkeys(("train", "val", "test"), NONE)
    how = {"config": settings(data, given), "random_state": given.seed, **parameters}
    estimator = kind(device=given.device, **how)
    check_model(learned, estimator.settings(), given.device)
    paths = (own_path(name, given.data_dir), given.config)
    return Job(data, learned, parts, estimator, paths, not given.no_memory_check)
