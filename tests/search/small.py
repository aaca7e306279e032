"""Searches that take a second."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from training.toys import SMALL, roles, toy
from vepm.data import Dataset
from vepm.search.log import Trial
from vepm.search.space import Space
from vepm.search.tuning import Findings, Problem, tune

SPACE = Space.from_dict(
    {
        "dropout": {"low": 0.1, "high": 0.6},
        "learning_rate": {"low": 1e-3, "high": 1e-1, "log": True},
        "num_metacommunities": {"choices": [1, 2, 4]},
        "bank_layers": {"low": 1, "high": 2},
    }
)


def small_problem(task: str = "node", **changes: Any) -> Problem:
    """A toy task, its small settings and a small space; changes go to it."""
    train, val, _ = roles(task)
    given: dict[str, Any] = {"dataset": toy(task), "train": train, "val": val}
    given |= {"base": SMALL[task], "space": SPACE}
    return Problem(**(given | changes))


def search(problem: Problem, folder: Path, trials: int = 4, **options: Any) -> Findings:
    """A search on the CPU."""
    return tune(problem, folder, trials=trials, device="cpu", **options)


def without_times(trials: list[Trial]) -> list[Trial]:
    """What must not differ between two searches; NaN differs from itself."""
    return [
        replace(trial, spread=0.0, rows=tuple(row | {"seconds": 0.0} for row in trial.rows))
        for trial in trials
    ]


def with_shuffled_test_labels(dataset: Dataset, test: torch.Tensor) -> Dataset:
    """The dataset with every test label moved on to the next class."""
    graphs = [graph.clone() for graph in dataset.graphs]
    if dataset.task == "node":
        graphs[0].y[test] = (graphs[0].y[test] + 1) % dataset.num_classes
    else:
        for number in test.tolist():
            graphs[number].y = (graphs[number].y + 1) % dataset.num_classes
    return replace(dataset, graphs=graphs)
