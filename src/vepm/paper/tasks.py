"""One run: resolved settings, its fingerprint, and how it is carried out."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vepm.baselines import BASELINES, baseline
from vepm.data import Dataset, datasets, load
from vepm.errors import InputError
from vepm.evaluation import PROTOCOLS, RunResult, Split, VEPMMethod, keep_labels, labels_of
from vepm.paper.setting import Setting
from vepm.paper.specification import Choice
from vepm.paper.studies import STUDIES, WHOLE
from vepm.training import Config, preset
from vepm.training.legacy import recorded

PRESET = "tuned"
QUICK_GRAPHS = 40
QUICK_VEPM: dict[str, Any] = {
    "epochs": 2,
    "pretrain_epochs": 3,
    "encoder_interval": 1,
    "passes": 1,
}
QUICK_EPOCHS = 2


@dataclass(frozen=True)
class Task:
    """Everything that decides the outcome of a run, ready for JSON.

    Two squares of whatever experiments that need the same run have equal tasks.
    """

    method: str
    dataset: str
    protocol: str
    split: int
    seed: int
    keep: float
    quick: bool
    settings: Mapping[str, Any] = field(hash=False)

    @cached_property
    def fingerprint(self) -> str:
        """Short name of the task, other for any other."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run leaves behind: a curve, numbers, arrays, or several of these."""

    result: RunResult | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, Tensor] = field(default_factory=dict)


def resolve(choice: Choice, quick: bool) -> Task:
    """The task behind the first run of a square; the others differ in split and seed.

    Raises:
        InputError: if the method, the dataset or a setting is not known.
    """
    assert choice.dataset is not None
    assert choice.method is not None
    protocol = protocol_of(choice)
    return Task(
        method=choice.method,
        dataset=choice.dataset,
        protocol=protocol,
        split=0,
        seed=0,
        keep=1.0 if choice.keep is None else float(choice.keep),
        quick=quick,
        settings=_settings(choice, protocol, quick),
    )


def protocol_of(choice: Choice) -> str:
    """The protocol a square is measured by."""
    if choice.protocol is None:
        return "public" if task_of(choice.dataset or "") == "node" else "gin"
    if choice.protocol not in PROTOCOLS:
        raise InputError(f"no protocol '{choice.protocol}'; there are {', '.join(PROTOCOLS)}")
    return choice.protocol


@cache
def task_of(dataset: str) -> str:
    """What a dataset labels, nodes or graphs, without loading it."""
    for info in datasets():
        if info.name == dataset:
            return info.task
    raise InputError(f"unknown dataset '{dataset}'; `vepm datasets` lists those known")


def _settings(choice: Choice, protocol: str, quick: bool) -> dict[str, Any]:
    method = choice.method or ""
    if method in BASELINES:
        epochs = QUICK_EPOCHS if quick else None
        chosen = baseline(method, choice.dataset, epochs=epochs, settings=choice.settings)
        return {key: value for key, value in chosen.settings().items() if key != "device"}
    if method != "vepm" and method not in STUDIES:
        known = ["vepm", *BASELINES, *STUDIES]
        raise InputError(f"no method '{method}'; there are {', '.join(known)}")
    partition = choice.settings.get("partition", "learned")
    config = preset(PRESET, task_of(choice.dataset or ""), choice.dataset, partition)
    config = config.replace(**choice.settings)
    if protocol == "gin":
        config = config.replace(patience=0)
    if quick:
        config = config.replace(**QUICK_VEPM)
    return recorded(config)


def prepare(task: Task, root: Path | None) -> tuple[Dataset, Split]:
    """The data of a task and who trains, validates and tests."""
    shrink = task.quick and task.method not in WHOLE
    dataset = open_dataset(task.dataset, root, QUICK_GRAPHS if shrink else 0)
    split = PROTOCOLS[task.protocol](dataset, 0)[task.split]
    return dataset, kept(split, dataset, task.keep, task.seed)


def kept(split: Split, dataset: Dataset, part: float, seed: int) -> Split:
    """The split with a part of its training labels; with all of them it is the same one."""
    return split if part == 1 else keep_labels(split, labels_of(dataset), part, seed)


def perform(task: Task, root: Path | None, device: str) -> Outcome:
    """Carry a task out."""
    dataset, split = prepare(task, root)
    if task.method in BASELINES:
        return Outcome(_run_baseline(task, dataset, split, device))
    config = Config.from_dict(dict(task.settings))
    if task.method == "vepm":
        return Outcome(VEPMMethod(config, device)(dataset, split, task.seed))
    setting = Setting(dataset, split, config, task.seed, device, task.quick)
    found = STUDIES[task.method](setting)
    return Outcome(found.result, found.numbers, found.arrays)


def _run_baseline(task: Task, dataset: Dataset, split: Split, device: str) -> RunResult:
    where = device
    if device == "auto":
        where = "cuda" if torch.cuda.is_available() else "cpu"
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in task.settings.items()}
    method = baseline(task.method, device=where, settings=values)
    return method(dataset, split, task.seed)


@lru_cache(maxsize=2)
def open_dataset(name: str, root: Path | None, graphs: int = 0) -> Dataset:
    """A dataset, or its first graphs of each class in proportion, kept for the next run."""
    dataset = load(name, root)
    if not graphs or dataset.task == "node" or len(dataset.graphs) <= graphs:
        return dataset
    labels = labels_of(dataset)
    share = graphs / len(labels)
    chosen = [
        (labels == label).nonzero().flatten()[: max(1, round(share * int((labels == label).sum())))]
        for label in labels.unique()
    ]
    kept = sorted(torch.cat(chosen).tolist())
    names = dataset.graph_names
    return replace(
        dataset,
        graphs=[dataset.graphs[i] for i in kept],
        graph_names=None if names is None else tuple(names[i] for i in kept),
        folds=None,
        splits=None,
    )
