"""What holds for every baseline."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from baselines.toys import graph_split, graph_toy, node_toy, relabelled
from vepm.baselines import BASELINES, PUBLISHED, Baseline, baseline
from vepm.baselines.neural import NeuralBaseline
from vepm.data import Dataset
from vepm.errors import InputError
from vepm.evaluation import RunResult, Split, public_split

SMALL: dict[str, dict[str, Any]] = {
    "disengcn": {"num_layers": 2, "num_iterations": 3},
    "wl": {"max_iterations": 2, "inner_folds": 3},
}


def small(name: str, epochs: int) -> Baseline:
    return baseline(name, epochs=epochs, settings=SMALL.get(name))


def toy_for(name: str) -> tuple[Dataset, Split]:
    if BASELINES[name].task == "graph":
        return graph_toy(), graph_split()
    dataset = node_toy()
    return dataset, public_split(dataset)


@pytest.mark.parametrize("name", BASELINES)
def test_learns_above_chance(name: str) -> None:
    dataset, split = toy_for(name)
    epochs = 60 if dataset.task == "node" else 40
    result = small(name, epochs)(dataset, split, seed=0)
    assert result.test_accuracy > 1 / dataset.num_classes + 0.2
    assert result.method == name
    assert result.seconds > 0


def test_settings_are_those_that_were_published() -> None:
    """As in the papers of Kipf and Welling (2017) and of Velickovic et al. (2018)."""
    every = {"weight_decay": 5e-4}
    gcn = {"learning_rate": 0.01, "dropout": 0.5, "patience": 10, "hidden_channels": 16}
    gat = {"learning_rate": 0.005, "dropout": 0.6, "patience": 100}
    heads = {"heads": 8, "head_channels": 8, "output_heads": 1}
    for name, printed in (("gcn", every | gcn), ("gat", every | gat | heads)):
        ours = vars(baseline(name))
        assert {key: ours[key] for key in printed} == printed


@pytest.mark.parametrize("name", BASELINES)
def test_measures_are_of_the_epoch_that_counts(name: str) -> None:
    dataset, split = toy_for(name)
    result = small(name, epochs=4)(dataset, split, seed=0)
    classes = result.measures["per_class"]
    hits = sum(row["recall"] * row["support"] for row in classes)
    assert hits / split.test.numel() == pytest.approx(result.test_accuracy)
    assert 0.5 < result.measures["roc_auc"] <= 1


@pytest.mark.parametrize("name", BASELINES)
def test_same_seed_same_numbers(name: str) -> None:
    dataset, split = toy_for(name)
    method = small(name, epochs=4)
    first = method(dataset, split, seed=3)
    torch.rand(5)
    assert method(dataset, split, seed=3).curve == first.curve
    assert RunResult.from_dict(json.loads(json.dumps(first.to_dict()))) == first


@pytest.mark.parametrize("name", BASELINES)
def test_test_labels_decide_nothing(name: str) -> None:
    dataset, split = toy_for(name)
    method = small(name, epochs=4)
    results = [
        method(relabelled(dataset, split.test, label), split, seed=0)
        for label in range(dataset.num_classes)
    ]
    for result in results[1:]:
        assert result.best_epoch == results[0].best_epoch
        for part in ("train_loss", "val_loss", "val_accuracy"):
            assert result.curve[part] == results[0].curve[part]
    # Each prediction matches exactly one of the constant labellings if none of them changed it.
    for scores in zip(*(result.curve["test_accuracy"] for result in results), strict=True):
        assert sum(scores) == pytest.approx(1.0)


@pytest.mark.parametrize("name", BASELINES)
def test_validation_labels_do_not_train(name: str) -> None:
    dataset, split = toy_for(name)
    method = small(name, epochs=4)
    first, second = (
        method(relabelled(dataset, split.val, label), split, seed=0) for label in (0, 1)
    )
    assert first.curve["train_loss"] == second.curve["train_loss"]
    assert first.curve["test_accuracy"] == second.curve["test_accuracy"]


@pytest.mark.parametrize("name", BASELINES)
def test_runs_without_validation(name: str) -> None:
    dataset, split = toy_for(name)
    without = Split("no-val", split.train, torch.tensor([]), split.test)
    result = small(name, epochs=3)(dataset, without, seed=0)
    assert result.val_accuracy is None
    assert result.best_epoch == len(result.curve["test_accuracy"]) - 1


def test_global_random_state_is_left_alone() -> None:
    dataset, split = toy_for("gcn")
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    small("gcn", epochs=2)(dataset, split, seed=9)
    assert torch.rand(3).equal(expected)


def test_settings_are_checked_and_applied() -> None:
    method = baseline("gcn", epochs=7, settings={"hidden_channels": 5})
    assert method.settings()["hidden_channels"] == 5
    assert method.settings()["epochs"] == 7
    assert baseline("gcn-64").settings()["hidden_channels"] == 64
    with pytest.raises(InputError, match="no baseline 'gnn'"):
        baseline("gnn")
    with pytest.raises(InputError, match="no setting 'depth'"):
        baseline("gcn", settings={"depth": 3})


def test_what_does_not_train_ignores_epochs_and_device() -> None:
    for name in ("label-propagation", "wl"):
        assert baseline(name, epochs=3, device="cpu") == BASELINES[name]


def test_published_settings_are_real_settings() -> None:
    for name, datasets in PUBLISHED.items():
        for dataset, settings in datasets.items():
            changed = baseline(name, dataset).settings()
            assert {key: changed[key] for key in settings} == settings
            assert baseline(name, dataset) != BASELINES[name]


def test_the_wrong_kind_of_task_is_refused() -> None:
    dataset, split = toy_for("gin")
    with pytest.raises(InputError, match="labels nodes"):
        baseline("gcn")(dataset, split, seed=0)


def test_patience_ends_training_early() -> None:
    dataset, split = toy_for("gcn")
    settings = {"epochs": 300, "patience": 5, "learning_rate": 0.1}
    result = baseline("gcn", settings=settings)(dataset, split, seed=0)
    assert len(result.curve["train_loss"]) < 300


@pytest.mark.parametrize("name", [n for n, method in BASELINES.items() if method.task == "node"])
def test_sparse_features_give_the_results_of_a_table(name: str) -> None:
    dataset, split = toy_for(name)
    table, graph = dataset.graphs[0].clone(), dataset.graphs[0].clone()
    table.x = (table.x > 0).float()
    graph.x = table.x.to_sparse_coo().coalesce()
    dataset, sparse = (replace(dataset, graphs=[one]) for one in (table, graph))
    method = small(name, epochs=3)
    found, expected = (method(data, split, seed=0).curve for data in (sparse, dataset))
    assert found["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-4)
    assert found["test_accuracy"] == expected["test_accuracy"]


NEURAL = [name for name, method in BASELINES.items() if isinstance(method, NeuralBaseline)]


@pytest.mark.parametrize("name", NEURAL)
def test_units_of_numbers_change_nothing(name: str) -> None:
    dataset, split = toy_for(name)
    generator = torch.Generator().manual_seed(5)
    metres, feet = ([graph.clone() for graph in dataset.graphs] for _ in range(2))
    for one, other in zip(metres, feet, strict=True):
        one.x = torch.randn(len(one.x), 8, generator=generator)
        other.x = 5e4 + 4096 * one.x
    found = [
        small(name, epochs=2)(replace(dataset, graphs=graphs), split, seed=0).curve["train_loss"]
        for graphs in (metres, feet)
    ]
    assert found[1] == pytest.approx(found[0], rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dropout": 1.5}, "dropout must be a number at least 0 and below 1"),
        ({"epochs": 2.5}, "epochs must be of type int"),
        ({"hidden_channels": "many"}, "type int"),
    ],
)
def test_values_of_settings_are_checked(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        baseline("gcn", settings=settings)


def test_device_may_be_left_to_the_machine() -> None:
    assert baseline("gcn", device="auto").settings()["device"] in ("cpu", "cuda")
