"""The literal construction computes what the model computes, or the comparison would be unfair."""

import pytest
import torch
from torch import Tensor

from benchmarks.literal import LITERAL, LiteralVEPM, pairwise_log_likelihood
from strategies import random_graph, scramble, uniform
from vepm.bench.steps import STEPS, build_model
from vepm.data import planted_graph
from vepm.nn import VEPM
from vepm.objective import edge_log_likelihood
from vepm.scale.batches import single_graph
from vepm.training.config import TrainingConfig
from vepm.training.losses import bound_loss, pretraining_loss

GRAPH = planted_graph(60, 3, average_degree=6, num_features=5, seed=0).graphs[0]
CONFIG = TrainingConfig(sampling=False)


def small_model() -> VEPM:
    model = build_model(GRAPH, dropout=0.0)[0].double()
    scramble(model)
    return model


def gradients(loss: Tensor, model: VEPM) -> list[Tensor | None]:
    return list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))


@pytest.mark.parametrize("step", ["pretrain", "joint"])
def test_losses_and_gradients_agree(step: str) -> None:
    graph = GRAPH.clone()
    graph.x = graph.x.double()
    model = small_model()
    batch = single_graph(graph)
    literal = LiteralVEPM(model, graph.edge_index, 60)
    rows = graph.train_mask.nonzero().flatten()
    if step == "pretrain":
        ours = pretraining_loss(model, batch, CONFIG).loss
        theirs = literal.pretraining_loss(graph.x, CONFIG)
    else:
        ours = bound_loss(model, batch, rows, CONFIG).loss
        theirs = literal.bound_loss(graph.x, graph.y, rows, CONFIG)
    torch.testing.assert_close(ours, theirs)
    pairs = list(zip(gradients(ours, model), gradients(theirs, model), strict=True))
    assert any(our is not None for our, _ in pairs)
    for our, their in pairs:
        assert (our is None) == (their is None)
        if our is not None:
            torch.testing.assert_close(our, their)


@pytest.mark.parametrize("at_once", [1, 20, 2**25])
def test_blocks_of_rows_do_not_matter(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.literal.PAIRS_AT_ONCE", at_once)
    graph = random_graph(9)
    z, activation = uniform(0, 9, 4).requires_grad_(), uniform(1, 4).requires_grad_()
    literal = pairwise_log_likelihood(z, activation, graph.edge_index)
    exact = edge_log_likelihood(z, activation, graph.edge_index, balanced=True).squeeze()
    torch.testing.assert_close(literal, exact)
    for ours, theirs in zip(
        torch.autograd.grad(literal, [z, activation]),
        torch.autograd.grad(exact, [z, activation]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("step", [step for step in STEPS if LITERAL.fits(step, 60, 400)])
def test_every_step_lowers_its_loss(step: str) -> None:
    train = LITERAL.build(step, GRAPH, "cpu")
    losses = [float(train()) for _ in range(30)]
    assert sum(losses[-5:]) < sum(losses[:5])
