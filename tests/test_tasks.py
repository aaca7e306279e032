"""Tasks: what is labelled, and how that is read from a dataset."""

from dataclasses import replace

import pytest
import torch

from vepm.data import load
from vepm.errors import InputError
from vepm.measures import class_measures
from vepm.tasks import task_named


@pytest.mark.parametrize("name", ["KarateClub", "digits-graphs"])
def test_labels_and_names_have_one_entry_per_item(name: str) -> None:
    dataset = load(name)
    items = dataset.graphs[0].num_nodes if dataset.single_graph else len(dataset.graphs)
    assert dataset.labels.shape == (items,)
    assert len(set(dataset.item_names)) == items


@pytest.mark.parametrize("name", ["KarateClub", "digits-graphs"])
def test_other_labels_leave_the_dataset_as_it_was(name: str) -> None:
    dataset = load(name)
    before = dataset.labels
    other = before.flip(0)
    changed = dataset.with_labels(other)
    assert changed.labels.equal(other)
    assert dataset.labels.equal(before)
    assert changed.graphs[0].y.shape == dataset.graphs[0].y.shape
    assert changed.graphs[0].x is dataset.graphs[0].x


def test_masks_are_those_of_the_graph_or_of_the_first_split() -> None:
    karate = load("KarateClub")
    assert karate.masks is not None
    assert karate.masks[0] is karate.graphs[0].train_mask
    digits = load("digits-graphs")
    assert digits.masks is None
    parts = tuple(torch.arange(600) % 3 == i for i in range(3))
    assert replace(digits, splits=((parts[0], parts[1], parts[2]),)).masks == parts


def test_measures_of_several_classes_by_hand() -> None:
    # Predicted 0, 1, 1, 2; one of class 0 is taken for class 1.
    probabilities = torch.tensor(
        [[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9]]
    )
    found = class_measures(probabilities, torch.tensor([0, 0, 1, 2]))
    assert found["per_class"][0] == {
        "precision": 1.0,
        "recall": 0.5,
        "f1": pytest.approx(2 / 3),
        "support": 2,
    }
    assert found["macro_f1"] == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert found["roc_auc"] == 1.0


def test_the_area_of_three_classes_is_the_mean_over_all_of_them() -> None:
    # Items of class 0 rank half right among the others, those of 1 and 2 without a fault.
    probabilities = torch.tensor(
        [[0.2, 0.1, 0.1], [0.6, 0.0, 0.0], [0.1, 0.9, 0.1], [0.4, 0.1, 0.8]]
    )
    found = class_measures(probabilities, torch.tensor([0, 0, 1, 2]))
    assert found["roc_auc"] == pytest.approx((0.75 + 1 + 1) / 3)
    assert [row["support"] for row in found["per_class"]] == [2, 1, 1]


def test_classes_without_test_items_count_for_nothing() -> None:
    probabilities = torch.tensor([[0.6, 0.4, 0.0], [0.7, 0.3, 0.0], [0.65, 0.35, 0.0]])
    found = class_measures(probabilities, torch.tensor([1, 0, 0]))
    assert found["macro_f1"] == pytest.approx(0.4)
    assert found["roc_auc"] == 1.0
    assert found["per_class"][2] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    assert class_measures(probabilities, torch.zeros(3).long())["roc_auc"] is None


def test_a_model_that_has_diverged_ranks_nothing() -> None:
    lost = torch.full((4, 2), torch.nan)
    assert class_measures(lost, torch.tensor([0, 1, 0, 1]))["roc_auc"] == 0.5


def test_two_classes_have_one_curve() -> None:
    # The second of class 1 ranks below one of class 0: three of four pairs are in order.
    one = torch.tensor([0.9, 0.4, 0.5, 0.1])
    found = class_measures(torch.stack([1 - one, one], 1), torch.tensor([1, 1, 0, 0]))
    assert found["roc_auc"] == 0.75


@pytest.mark.parametrize("name", ["edge", "", None, ["node"]])
def test_an_unknown_task_is_refused(name: object) -> None:
    with pytest.raises(InputError, match="give one of 'node', 'graph'"):
        task_named(name)
