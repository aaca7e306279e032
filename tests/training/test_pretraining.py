"""Pretraining gets better, knows when to stop, and says so when it diverges."""

import math

import pytest
import torch
from torch_geometric.data import Data

from training.toys import SMALL, TASKS, run, started
from vepm.data import as_dataset, planted_graph
from vepm.errors import InputError
from vepm.training import fit, loop
from vepm.training.loop import Course

NONE = torch.empty(0, dtype=torch.long)


@pytest.mark.parametrize("task", TASKS)
def test_edges_become_more_likely(task: str) -> None:
    config = SMALL[task].replace(pretrain_epochs=40)
    history = run(task, config, train_on=NONE, validate_on=NONE, watch=None).history
    edges = [row["edges"] for row in history]
    assert len(edges) == 40
    assert sum(edges[-5:]) / 5 > sum(edges[:5]) / 5 + 0.05
    assert history[-1]["loss"] < history[0]["loss"]


def test_pretraining_stops_once_it_has_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"train_on": NONE, "validate_on": NONE, "watch": None}
    config = SMALL["node"].replace(pretrain_epochs=400)
    monkeypatch.setattr(loop, "PRETRAIN_TOLERANCE", 0.05)
    monkeypatch.setattr(loop, "PRETRAIN_PATIENCE", 10)
    stopped = run("node", config, **options).history
    assert 10 < len(stopped) < 200
    monkeypatch.setattr(loop, "PRETRAIN_PATIENCE", 0)
    never = run("node", config.replace(pretrain_epochs=250), **options)
    assert len(never.history) == 250


def test_convergence_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PRETRAIN_TOLERANCE", 0.1)
    course = Course()
    found = []
    for loss in (2.0, 2.0, 0.0, 0.0, 10.0):
        course.note({"loss": loss})
        found.append((round(course.smoothed, 6), course.stale))
    # The first counts as better; 2 is no better; 1.8 is not below 2 by a tenth; 1.62 is.
    assert found == [(2.0, 0), (2.0, 1), (1.8, 2), (1.62, 0), (2.458, 1)]


def test_a_better_negative_loss_counts_too() -> None:
    course = Course()
    for loss in (-1.0, -3.0):
        course.note({"loss": loss})
    assert (round(course.smoothed, 6), course.stale) == (-1.2, 0)


def test_finetuning_starts_with_patience_and_momentum_anew() -> None:
    fresh, _ = started(run("node").model, SMALL["node"])
    course = fresh.courses[0]
    course.stale, course.epoch = 7, 9
    fresh.encoder_optimizer.state[torch.ones(1)] = {"step": torch.ones(1)}
    fresh.enter("finetune")
    assert (fresh.phase, course.epoch, course.stale) == ("finetune", 0, 0)
    assert not fresh.encoder_optimizer.state


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (3e38, r"(task|edges|kl) is (nan|-?inf) in epoch 0"),
        # Batch norm on a CPU sums in double precision, but its running variance is single.
        (1e30, "running statistic is not finite in epoch 0"),
    ],
)
@pytest.mark.parametrize("scheme", ["alternating", "scratch"])
def test_divergence_names_the_cause_and_the_epoch(scheme: str, scale: float, words: str) -> None:
    dataset = planted_graph(30, 3, num_features=4, average_degree=6, seed=0)
    graph = dataset.graphs[0]
    graph.x = graph.x.sign() * scale
    config = SMALL["node"].replace(feature_norm="none", scheme=scheme)
    rows = graph.train_mask.nonzero().flatten()
    with pytest.raises(InputError, match=words) as caught:
        fit(dataset, config, train_on=rows, device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("likelihood", ["balanced", "summed", "subsampled"])
def test_graphs_without_edges_or_of_one_node_can_be_learned_from(likelihood: str) -> None:
    config = SMALL["graph"].replace(likelihood=likelihood)
    empty = torch.empty(2, 0, dtype=torch.long)
    graphs = [
        Data(x=torch.rand(n, 3), edge_index=empty, y=torch.tensor([n % 2])) for n in (1, 2, 3, 1)
    ]
    fitted = fit(as_dataset(graphs, "graph"), config, train_on=torch.arange(4), device="cpu")
    losses = [row["loss"] for row in fitted.history]
    assert len(losses) == 8
    assert all(math.isfinite(loss) for loss in losses)


def test_history_has_every_term_of_its_phase() -> None:
    fitted = run("node", SMALL["node"].replace(scheme="joint", passes=2))
    shared = {"phase", "epoch", "loss", "edges", "kl", "seconds", "learning_rate"}
    watched = {"val_accuracy", "val_loss", "test_accuracy", "test_loss"}
    assert set(fitted.history[0]) == shared
    finetuned = shared | watched | {"task", "disagreement", "train_accuracy"}
    assert set(fitted.history[-1]) == finetuned
    assert [row["epoch"] for row in fitted.history] == [0, 1, 2, 0, 1, 2, 3, 4]
