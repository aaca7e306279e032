"""What commands are given, checked before any work is done: data, settings, splits, baselines."""

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vepm.baselines import Baseline, baseline
from vepm.cli.options import Reading
from vepm.data import Dataset, datasets, is_recipe, load, read
from vepm.errors import InputError
from vepm.evaluation import Split
from vepm.files import parse_toml, read_toml
from vepm.training import Config, ModelCard, pick_device, set_aside
from vepm.training import preset as preset_settings

logger = logging.getLogger("vepm")

SPLIT_SEED = 0
"""Own graphs are split once and for all, whatever the seed of the run."""


def open_data(name: str, data_dir: Path | None, reading: Reading, **known: Any) -> Dataset:
    """A dataset by name, or a user's own by path; a bare name that is both is the dataset."""
    path = _own_path(name, data_dir)
    if path is not None:
        return read(path, **reading.arguments(), **known)
    if replace(reading, strict=False) != Reading():
        raise InputError(
            f"{name}: --label, --features, --drop, --no-weights and --directed are for data of "
            "your own; this is a known set"
        )
    return load(name, data_dir)


def _own_path(name: str, data_dir: Path | None) -> Path | None:
    if is_recipe(name):
        return None
    path = Path(name)
    own = os.sep in name or bool(path.suffix)
    if not own and path.exists():
        own = name.lower() not in {info.name.lower() for info in datasets(data_dir)}
    return path if own else None


def given_paths(name: str, data_dir: Path | None, *files: Path | None) -> tuple[Path, ...]:
    """The user's own files that a command reads."""
    return tuple(path for path in (_own_path(name, data_dir), *files) if path is not None)


def settings(dataset: Dataset, preset: str, file: Path | None, pairs: list[str] | None) -> Config:
    """A preset, changed by a TOML file, changed by ``name=value`` pairs."""
    config = preset_settings(preset, dataset.task, dataset.name)
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
        train, test = set_aside(train, y, SPLIT_SEED)
    if val.numel() == 0:
        train, val = set_aside(train, y, SPLIT_SEED)
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
