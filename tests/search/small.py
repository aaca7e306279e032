"""Searches that take a second."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from training.toys import SMALL, roles, toy
from vepm.data import Dataset
from vepm.search.space import flat, parse_space
from vepm.search.tuning import Trial, Tuning, tune

SPACE = {
    "dropout": {"low": 0.1, "high": 0.6},
    "learning_rate": {"low": 1e-3, "high": 1e-1, "log": True},
    "num_metacommunities": [1, 2, 4],
    "bank_layers": {"low": 1, "high": 2},
}


def small_tuning(task: str = "node", **changes: Any) -> Tuning:
    """A toy task, its small settings and a small space; changes go to it."""
    train, val, _ = roles(task)
    given: dict[str, Any] = {"dataset": toy(task), "train": train, "val": val, "seeds": 1}
    given |= {"config": SMALL[task], "space": SPACE, "trials": 4} | changes
    check = given["config"].replace
    space = parse_space(given["space"], lambda changes: flat(check(**changes)))
    return Tuning(**given | {"space": space})


def search(tuning: Tuning, folder: Path, **options: Any) -> list[Trial]:
    """The trials of a search on the CPU."""
    tune(tuning, folder, device="cpu", **options)
    lines = (folder / "trials.jsonl").read_text().splitlines()
    return [Trial(**json.loads(line)) for line in lines[1:]]


def without_times(trials: list[Trial]) -> list[Trial]:
    """What must not differ between two searches."""
    return [replace(trial, seconds=0.0) for trial in trials]


def with_shuffled_test_labels(dataset: Dataset, test: torch.Tensor) -> Dataset:
    """The dataset with every test label moved on to the next class."""
    graphs = [graph.clone() for graph in dataset.graphs]
    if dataset.task == "node":
        graphs[0].y[test] = (graphs[0].y[test] + 1) % dataset.num_classes
    else:
        for number in test.tolist():
            graphs[number].y = (graphs[number].y + 1) % dataset.num_classes
    return replace(dataset, graphs=graphs)
