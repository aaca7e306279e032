"""Tasks: what is labelled, and how that is read from a dataset."""

import pytest
import torch

from vepm.data import load
from vepm.errors import InputError
from vepm.tasks import TASKS, task_named


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
    assert TASKS["graph"].masks(digits.graphs, [(parts[0], parts[1], parts[2])]) == parts


@pytest.mark.parametrize("name", ["edge", "", None, ["node"]])
def test_an_unknown_task_is_refused(name: object) -> None:
    with pytest.raises(InputError, match="give one of 'node', 'graph'"):
        task_named(name)
