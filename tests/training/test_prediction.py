"""Predictions: averages of draws, in pieces or at once."""

import dataclasses

import pytest
import torch

from training.toys import SMALL, TASKS, roles, run, toy
from vepm.errors import InputError
from vepm.measures import accuracy, calibration_error
from vepm.scale import batches
from vepm.training import (
    GraphBatch,
    GraphStore,
    Source,
    explain,
    probabilities,
    scores,
    set_aside,
    sources,
)


def whole(source: Source) -> GraphBatch:
    if isinstance(source, GraphBatch):
        return source
    assert isinstance(source, GraphStore)
    return source.select(torch.arange(len(source)))


@pytest.mark.parametrize("num_samples", [0, 1, 5])
@pytest.mark.parametrize("task", TASKS)
def test_rows_of_probabilities_sum_to_one(task: str, num_samples: int) -> None:
    fitted = run(task)
    found = probabilities(fitted.model, fitted.source, num_samples)
    assert found.shape == (fitted.source.y.numel(), len(fitted.card.class_names))
    assert bool((found >= 0).all())
    torch.testing.assert_close(found.sum(1), torch.ones(found.size(0)))


@pytest.mark.parametrize("task", TASKS)
def test_average_over_samples_is_the_mean_of_single_draws(task: str) -> None:
    fitted = run(task)
    batch = whole(fitted.source)
    torch.manual_seed(7)
    with torch.no_grad():
        draws = [
            fitted.model(batch.x, batch.edges, batch.batch, batch.num_graphs, sample=True).logits
            for _ in range(4)
        ]
    expected = torch.stack([fitted.model.probabilities(logits) for logits in draws]).mean(0)
    found = probabilities(fitted.model, fitted.source, 4, seed=7)
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(draws[0], draws[1])


@pytest.mark.parametrize("task", TASKS)
def test_no_samples_mean_the_posterior_mean(task: str) -> None:
    fitted = run(task)
    found = probabilities(fitted.model, fitted.source, 0)
    assert torch.equal(found, fitted.model.probabilities(scores(fitted.model, fitted.source)))
    batch = whole(fitted.source)
    with torch.no_grad():
        out = fitted.model(batch.x, batch.edges, batch.batch, batch.num_graphs)
    assert torch.equal(out.z, out.posterior.mean)
    torch.testing.assert_close(found, fitted.model.probabilities(out.logits))


@pytest.mark.parametrize("batch_nodes", [0, 20])
def test_numbers_that_are_not_finite_are_an_error(batch_nodes: int) -> None:
    fitted = run("node", SMALL["node"].replace(feature_norm="none"))
    graph = toy("node").graphs[0].clone()
    graph.x = graph.x * 1e38
    far = dataclasses.replace(toy("node"), graphs=[graph])
    source = sources.in_batches(
        far, torch.device("cpu"), SMALL["node"].replace(batch_size=batch_nodes)
    )
    for ask in (
        lambda: probabilities(fitted.model, source),
        lambda: probabilities(fitted.model, source, 2),
        lambda: explain(fitted.model, source),
    ):
        with pytest.raises(InputError, match="no finite numbers for these data"):
            ask()


@pytest.mark.parametrize("task", TASKS)
def test_predicting_does_not_train(task: str) -> None:
    fitted = run(task)
    before = {name: value.clone() for name, value in fitted.model.state_dict().items()}
    fitted.model.train()
    found = probabilities(fitted.model, fitted.source, 2)
    explain(fitted.model, fitted.source)
    assert not found.requires_grad
    after = fitted.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("task", TASKS)
def test_explanation_has_a_row_for_every_node_and_edge(task: str) -> None:
    fitted = run(task)
    found, batch = explain(fitted.model, fitted.source), whole(fitted.source)
    nodes, edges = batch.x.size(0), batch.edges.edge_index
    assert found.memberships.shape == (nodes, 4)
    assert torch.equal(found.edge_index, edges)
    assert found.edge_weight.shape == (edges.size(1), 2)
    assert found.community_embeddings.shape == (nodes, 2, 4)
    assert found.embeddings.size(0) == fitted.source.y.numel()
    torch.testing.assert_close(found.edge_weight.sum(1), torch.ones(edges.size(1)))
    assert bool((found.memberships > 0).all())


def test_graphs_in_pieces_are_predicted_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = run("graph")
    at_once = explain(fitted.model, fitted.source)
    logits = scores(fitted.model, fitted.source)
    assert isinstance(fitted.source, GraphStore)
    del fitted.source.pieces
    monkeypatch.setattr(batches, "GRAPHS_AT_ONCE", 2)
    for found, expected in zip(explain(fitted.model, fitted.source), at_once, strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(scores(fitted.model, fitted.source), logits)
    sampled = probabilities(fitted.model, fitted.source, 3)
    assert sampled.shape == logits.shape
    torch.testing.assert_close(sampled.sum(1), torch.ones(12))


def test_batches_of_training_do_not_change_what_is_predicted_for_a_graph() -> None:
    fitted = run("graph", SMALL["graph"].replace(batch_size=3))
    store = fitted.source
    assert isinstance(store, GraphStore)
    alone = torch.cat([scores(fitted.model, store.select(torch.tensor([i]))) for i in range(12)])
    torch.testing.assert_close(alone, scores(fitted.model, store))


def test_labels_are_set_aside_in_proportion_and_the_same_way_twice() -> None:
    y = torch.tensor([0] * 40 + [1] * 20 + [-1] * 10)
    rows = torch.arange(60)
    kept, aside = set_aside(rows, y, seed=0)
    assert torch.equal(torch.cat([kept, aside]).sort().values, rows)
    assert torch.bincount(y[aside]).tolist() == [8, 4]
    again, other = set_aside(rows, y, seed=0)[1], set_aside(rows, y, seed=1)[1]
    assert torch.equal(aside, again)
    assert not torch.equal(aside, other)


@pytest.mark.parametrize(
    "labels",
    [[0, 1] * 4, [0] * 20 + [1], list(range(12)), []],
    ids=["few", "single", "all single", "none"],
)
def test_too_few_labels_are_all_learned_from(labels: list[int]) -> None:
    rows = torch.arange(len(labels))
    kept, aside = set_aside(rows, torch.tensor(labels, dtype=torch.long), seed=0)
    assert torch.equal(kept, rows)
    assert aside.numel() == 0


def test_the_only_label_of_a_class_is_learned_from() -> None:
    y = torch.tensor([0, 1] * 60 + [2])
    kept, aside = set_aside(torch.arange(121), y, seed=0)
    assert 120 in kept
    assert aside.numel() == 24


def test_two_labels_of_many_classes_can_still_be_split() -> None:
    y = torch.arange(30) % 15
    kept, aside = set_aside(torch.arange(30), y, seed=0)
    assert sorted(y[kept].tolist()) == sorted(y[aside].tolist()) == list(range(15))
    assert len(y) >= sources.FEWEST_TO_SPLIT


def test_accuracy_by_hand() -> None:
    found = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]])
    assert accuracy(found, torch.tensor([0, 1, 1])) == pytest.approx(2 / 3)


def test_calibration_error_by_hand() -> None:
    sure = torch.tensor([[1.0, 0.0]] * 4)
    assert calibration_error(sure, torch.tensor([0, 0, 0, 0])) == 0
    assert calibration_error(sure, torch.tensor([0, 0, 0, 1])) == pytest.approx(0.25)
    # Two bins of one each: |1 - 0.6| / 2 + |0 - 0.9| / 2.
    two = torch.tensor([[0.6, 0.4], [0.9, 0.1]])
    assert calibration_error(two, torch.tensor([0, 1])) == pytest.approx(0.65, abs=1e-6)


def test_recorded_training_accuracy_counts_every_label_once() -> None:
    config = SMALL["graph"].replace(batch_size=3, dropout=0.0, scheme="joint")
    fitted = run("graph", config)
    for row in fitted.history[3:]:
        correct = row["train_accuracy"] * roles("graph")[0].numel()
        assert correct == pytest.approx(round(correct))
        assert 0 <= row["train_accuracy"] <= 1
