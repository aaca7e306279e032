"""Small tasks, small settings, and what it means for two runs to be the same."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from strategies import complete, no_edges, path, random_graph
from vepm.data import Dataset, as_dataset, planted_graph
from vepm.nn import VEPM
from vepm.scale.executor import OneRun
from vepm.training import (
    Config,
    Fitted,
    Run,
    Source,
    TrainingState,
    fit,
    in_batches,
    probabilities,
    scores,
)

TASKS = ("node", "graph")
SCHEMES = ("alternating", "joint", "predictor", "scratch")

_BASE = Config().replace(
    num_communities=4,
    num_metacommunities=2,
    hidden_channels=8,
    encoder_channels=8,
    pretrain_epochs=3,
    epochs=5,
    patience=0,
)
SMALL = {"node": _BASE, "graph": _BASE.replace(conv="gin", normalize="none")}


@functools.cache
def toy(task: str) -> Dataset:
    """A planted graph with labelled nodes, or dense and sparse graphs to tell apart."""
    if task == "node":
        return planted_graph(60, 3, num_features=6, seed=0)
    shapes = [path(4), complete(4), path(6), complete(5), path(5), complete(6), no_edges(3)]
    shapes += [random_graph(6, 0.9, seed=seed) for seed in range(5)]
    generator = torch.Generator().manual_seed(0)
    return as_dataset(
        [
            Data(
                x=torch.rand(shape.num_nodes, 3, generator=generator),
                edge_index=shape.edge_index,
                y=torch.tensor([int(shape.edge_index.size(1) > 2 * shape.num_nodes)]),
            )
            for shape in shapes
        ],
        task="graph",
        name="shapes",
    )


def roles(task: str) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of the nodes or graphs that train, validate and test."""
    if task == "graph":
        return torch.arange(7), torch.arange(7, 10), torch.arange(10, 12)
    graph = toy(task).graphs[0]
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    train, val, test = (mask.nonzero().flatten() for mask in masks)
    return train, val, test


def source_of(task: str) -> Source:
    return in_batches(toy(task), torch.device("cpu"), Config())


def started(
    model: VEPM,
    config: Config,
    task: str = "node",
    of: Run | None = None,
    source: Source | None = None,
) -> tuple[TrainingState, OneRun]:
    """The state in which the training of a model begins."""
    of, size = of or Run(*roles(task)), config.training.batch_size
    executor = OneRun(model, source or source_of(task), of, scores=scores, batch_size=size)
    return TrainingState.start(executor, config.training), executor


def run(task: str, config: Config | None = None, **options: Any) -> Fitted:
    """A short training on the toy."""
    train, val, test = roles(task)
    wanted = {"train_on": train, "validate_on": val, "watch": test, "device": "cpu", **options}
    return fit(toy(task), SMALL[task] if config is None else config, **wanted)


def weights(fitted: Fitted) -> dict[str, Tensor]:
    return fitted.model.state_dict()


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """History without how long it took."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history]


def same_weights(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether two sets of weights agree in every bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def same_run(a: Fitted, b: Fitted) -> bool:
    """Whether two runs agree in every bit of their weights, histories and chosen epochs."""
    return (
        same_weights(weights(a), weights(b))
        and timeless(a.history) == timeless(b.history)
        and a.best_epoch == b.best_epoch
    )


def predictions(fitted: Fitted) -> Tensor:
    """Probabilities as the settings of the run ask for them."""
    draws = fitted.card.config.training.num_samples
    return probabilities(fitted.model, fitted.source, draws, seed=fitted.card.seed)


@contextmanager
def rng_untouched() -> Iterator[None]:
    """Fails if the caller's random numbers are not what they would have been."""
    torch.manual_seed(123)
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
