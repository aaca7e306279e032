"""Runs in double precision without noise, where runs together can be held to separate ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from training.toys import SMALL, TASKS, toy
from vepm.data import Dataset
from vepm.evaluation import gin_folds, public_split
from vepm.training import Config, Fitted, Run, fit

QUIET = {"dropout": 0.0, "sampling": False}


@contextmanager
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def _in_doubles(dataset: Dataset) -> Dataset:
    graphs = [graph.clone() for graph in dataset.graphs]
    for graph in graphs:
        graph.x = graph.x.double()
    return replace(dataset, graphs=graphs)


# Made here, before any test changes the type in which features are drawn.
EXACT_TOYS = {task: _in_doubles(toy(task)) for task in TASKS}


def quiet(task: str, **settings: object) -> Config:
    """Small settings in which nothing is drawn at random but weights and batches."""
    return SMALL[task].replace(**QUIET, **settings)


def runs_of(task: str, seeds: Sequence[int] = (0, 3, 7)) -> list[Run]:
    """Seeds of the public split, or folds with a seed each."""
    dataset = toy(task)
    if task == "node":
        split = public_split(dataset)
        return [Run(split.train, split.val, split.test, seed) for seed in seeds]
    folds = gin_folds(dataset, num_folds=len(seeds))
    held_out = zip(folds, [*folds[1:], folds[0]], seeds, strict=True)
    return [Run(f.train, other.test, f.test, seed) for f, other, seed in held_out]


def separately(dataset: Dataset, config: Config, runs: Sequence[Run]) -> list[Fitted]:
    return [
        fit(
            dataset,
            config,
            train_on=run.train_on,
            validate_on=run.validate_on,
            watch=run.watch,
            seed=run.seed,
            device="cpu",
        )
        for run in runs
    ]


def assert_same_runs(found: Sequence[Fitted], expected: Sequence[Fitted]) -> None:
    """Weights, histories and chosen epochs agree to rounding."""
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.best_epoch == theirs.best_epoch
        assert ours.card == theirs.card
        assert len(ours.history) == len(theirs.history)
        for row, other in zip(ours.history, theirs.history, strict=True):
            assert row.keys() == other.keys()
            assert row["phase"] == other["phase"]
            for name in row.keys() - {"phase", "seconds"}:
                assert row[name] == pytest.approx(other[name], rel=1e-9, abs=1e-9)
        weights = theirs.model.state_dict()
        assert ours.model.state_dict().keys() == weights.keys()
        for name, tensor in ours.model.state_dict().items():
            torch.testing.assert_close(tensor, weights[name], rtol=1e-9, atol=1e-9)
