"""Where nothing is drawn at random, runs together are separate runs to rounding."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from training.toys import SCHEMES, TASKS
from vepm.training import Fitted, fit_many, loop

from .doubles import EXACT_TOYS, assert_same_runs, double_precision, quiet, runs_of, separately


@pytest.fixture(autouse=True)
def _without_amplified_rounding(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A bias before a batch norm has no gradient but rounding, which Adam blows up to full steps.

    With a larger floor under what it divides by, rounding stays rounding.
    """
    monkeypatch.setattr(torch.optim, "Adam", functools.partial(torch.optim.Adam, eps=1e-3))
    with double_precision():
        yield


def check(task: str, **settings: Any) -> list[Fitted]:
    config, runs = quiet(task, **settings), runs_of(task)
    found = fit_many(EXACT_TOYS[task], config, runs, device="cpu")
    assert_same_runs(found, separately(EXACT_TOYS[task], config, runs))
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("task", TASKS)
def test_schemes(task: str, scheme: str) -> None:
    check(task, scheme=scheme, encoder_interval=2, batch_size=0 if task == "node" else 3)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "settings",
    [
        {"passes": 2, "consistency_weight": 2.0, "schedule": "halving"},
        {"class_balance_weight": 1.0, "passes": 2, "consistency_weight": 2.0, "batch_size": 4},
        {"likelihood": "summed", "kl_weight": 1.0, "schedule": "cosine", "scheme": "joint"},
        {"pretrain_epochs": 0, "bank_layers": 2},
        {"partition": "even", "inputs": "z", "composer": "fc"},
        {"inputs": "mass", "feature_norm": "l1", "composer_layers": 2, "batch_size": 4},
        {"inputs": "x", "readout": "last", "pooling": "mean"},
        {"inputs": "softmax", "num_metacommunities": 3, "normalize": "neighbours"},
        {"encoder": "plain", "likelihood": "summed"},
        {"normalize": "graph", "conv": "gcn"},
        {"normalize": "community", "conv": "gin"},
        {"composer": "weighted", "conv": "sage"},
        {"composer": "weighted", "weight_decay": 0.1, "scheme": "joint"},
        {"shares": "posterior", "temperature": 0.5, "composer": "weighted"},
        {"shares": "posterior", "weight_decay": 0.1, "scheme": "predictor"},
        {"shares": "posterior", "scheme": "joint", "batch_size": 4},
        {"encoder": "background", "shares": "posterior", "scheme": "joint"},
        {"interactions": "matrix", "scheme": "joint", "batch_size": 4},
        {"interactions": "matrix", "shares": "posterior", "scheme": "predictor"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings(task: str, settings: dict[str, Any]) -> None:
    # A graph that is taken in batches is trained by clusters, one run at a time.
    check(task, **settings | ({"batch_size": 0} if task == "node" else {}))


@pytest.mark.parametrize("directed", [False, True])
def test_weights_and_directions(directed: bool) -> None:
    graph = EXACT_TOYS["node"].graphs[0].clone()
    if directed:
        graph.edge_index = graph.edge_index[:, (2 * graph.edge_index[0] > graph.edge_index[1])]
        graph.directed = True
    graph.edge_weight = (graph.edge_index.sum(0) % 3 + 1).double()
    dataset = dataclasses.replace(EXACT_TOYS["node"], graphs=[graph])
    config = quiet("node", num_communities=4, num_metacommunities=2)
    found = fit_many(dataset, config, runs_of("node"), device="cpu")
    assert_same_runs(found, separately(dataset, config, runs_of("node")))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("what", ["partition", "inputs"])
def test_what_is_drawn_once_for_all(task: str, what: str) -> None:
    check(task, **{what: "random"}, batch_size=0 if task == "node" else 3)


def test_nodes_of_their_own_to_learn_from() -> None:
    config, runs = quiet("node"), runs_of("node")
    pool = torch.cat([runs[0].train_on, runs[0].validate_on])
    own = [
        run._replace(train_on=pool[i::4][:5], validate_on=pool[3::4][: 2 + i], watch=None)
        for i, run in enumerate(runs)
    ]
    own[1] = own[1]._replace(validate_on=pool[:0], watch=pool[:4])
    found = fit_many(EXACT_TOYS["node"], config, own, device="cpu")
    assert_same_runs(found, separately(EXACT_TOYS["node"], config, own))


@pytest.mark.parametrize("task", TASKS)
def test_runs_that_stop_at_different_epochs(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PRETRAIN_PATIENCE", 2)
    monkeypatch.setattr(loop, "PRETRAIN_TOLERANCE", 0.05 if task == "node" else 0.07)
    monkeypatch.setattr(loop, "PRETRAIN_LEARNING_RATE", 0.1)
    settings = {
        "pretrain_epochs": 25,
        "epochs": 12,
        "patience": 2,
        "learning_rate": 0.03,
    }
    found = check(task, **settings)
    lengths = [[row["phase"] for row in fitted.history] for fitted in found]
    for phase in ("pretrain", "finetune"):
        counts = [phases.count(phase) for phases in lengths]
        assert len(set(counts)) > 1, counts
