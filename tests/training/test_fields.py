"""Every setting does something, and every wrong value of it is refused by name."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import pytest
import torch

from training.toys import SMALL, TASKS, predictions, run, same_run
from vepm.errors import InputError
from vepm.training import Config, Fitted, ModelCard
from vepm.training.config import FIELDS, SECTIONS


class Case(NamedTuple):
    """Another value of a setting, and what else must be set for it to matter."""

    value: Any
    given: dict[str, Any] = {}  # noqa: RUF012
    tasks: tuple[str, ...] = TASKS


CASES = {
    "num_communities": Case(5),
    "num_metacommunities": Case(4),
    "hidden_channels": Case(10),
    "conv": Case({"node": "gin", "graph": "gcn"}),
    "encoder": Case("plain"),
    "encoder_channels": Case(9),
    "partition": Case("even"),
    "temperature": Case(0.1),
    "shares": Case("posterior"),
    "interactions": Case("matrix"),
    "normalize": Case("graph"),
    "inputs": Case("z"),
    "feature_norm": Case("l1"),
    "bank_layers": Case(2),
    "composer": Case("fc"),
    "composer_layers": Case(2),
    "hops": Case(3, tasks=("node",)),
    "dropout": Case(0.1),
    "node_dropout": Case(0.4),
    "pooling": Case("mean", tasks=("graph",)),
    "readout": Case("last", tasks=("graph",)),
    "scheme": Case("joint"),
    "encoder_interval": Case(3),
    "pretrain_epochs": Case(2),
    "epochs": Case(4),
    "learning_rate": Case(0.02),
    "encoder_learning_rate": Case(0.02),
    "weight_decay": Case(0.1),
    "schedule": Case("cosine"),
    "patience": Case(1, {"epochs": 15, "learning_rate": 0.3}),
    "batch_size": Case({"node": 20, "graph": 4}),
    "likelihood": Case("summed"),
    "edge_term_weight": Case(3.0),
    "shrinkage": Case(0.5),
    "kl_weight": Case(0.5),
    "passes": Case(2),
    "consistency_weight": Case(5.0, {"passes": 2}),
    "class_balance_weight": Case(1.0, {"passes": 2, "consistency_weight": 1.0}),
    "sampling": Case(False),
    "num_samples": Case(3),
}


@functools.cache
def base(task: str, given: tuple[tuple[str, Any], ...]) -> Fitted:
    return run(task, SMALL[task].replace(**dict(given)))


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("task", TASKS)
def test_every_field_changes_something(task: str, name: str) -> None:
    case = CASES[name]
    value = case.value[task] if isinstance(case.value, dict) else case.value
    first = base(task, tuple(case.given.items()))
    second = run(task, first.card.config.replace(**{name: value}))
    assert first.card.config != second.card.config
    same = same_run(first, second) and torch.equal(predictions(first), predictions(second))
    assert same == (task not in case.tasks)


def test_every_field_has_a_case_and_every_case_a_field() -> None:
    names = [f.name for section in SECTIONS.values() for f in dataclasses.fields(section)]
    assert sorted(CASES) == sorted(names)
    assert len(names) == len(set(names))


WRONG: dict[type, list[Any]] = {
    int: [-1, 1.5, "3", True, None, math.nan, [1]],
    float: [-0.5, math.nan, math.inf, -math.inf, "0.1", True, None],
    bool: [1, 0.0, "true", None],
    str: ["nonsense", "", 3, None, True, ["x"]],
}
ALSO_WRONG: dict[str, list[Any]] = {
    **{
        name: [0, 2**40]
        for name in (
            "num_communities",
            "num_metacommunities",
            "hidden_channels",
            "encoder_channels",
            "bank_layers",
            "composer_layers",
            "encoder_interval",
            "epochs",
            "passes",
        )
    },
    **{name: [1.0, 1.5, 2] for name in ("dropout", "node_dropout")},
    "hops": [1001],
    **{
        name: [0, 0.0]
        for name in (
            "temperature",
            "learning_rate",
            "encoder_learning_rate",
        )
    },
}


def build(**changes: Any) -> None:
    """Settings through both doors: the configuration and the model."""
    ModelCard("graph", 3, Config().replace(**changes), ("a", "b")).build()


@pytest.mark.parametrize("name", FIELDS)
def test_wrong_values_are_refused_by_name(name: str) -> None:
    kind = FIELDS[name].type
    assert isinstance(kind, type)
    for value in WRONG[kind] + ALSO_WRONG.get(name, []):
        with pytest.raises(InputError, match=rf"\b{name}\b") as caught:
            build(**{name: value})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("depth", ["bank_layers", "composer_layers"])
def test_absurd_depths_are_refused_before_they_are_built(depth: str) -> None:
    with pytest.raises(InputError, match=depth):
        Config().replace(**{depth: 1_000_000})


def test_more_metacommunities_than_communities_are_refused() -> None:
    with pytest.raises(InputError, match="num_metacommunities must be between 1 and") as caught:
        build(num_communities=3, num_metacommunities=4)
    assert "\n" not in str(caught.value)


def test_fewer_channels_than_metacommunities_are_refused() -> None:
    with pytest.raises(InputError, match="hidden_channels"):
        build(hidden_channels=3, num_metacommunities=4)
