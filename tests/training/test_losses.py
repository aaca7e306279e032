"""What each step minimises, put together by hand from its terms."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Gamma, kl_divergence

from training.toys import SMALL, TASKS, roles, run, source_of
from vepm.nn import VEPM, Adjacency
from vepm.objective import edge_log_likelihood
from vepm.training import Config, GraphBatch, GraphStore, loop
from vepm.training.losses import (
    Held,
    bound_loss,
    disagreement,
    hold,
    predictor_loss,
    pretraining_loss,
)

NOTHING = torch.empty(0)
NO_EDGES = Adjacency(torch.empty(2, 0, dtype=torch.long), 0)
ROWS = GraphBatch(NOTHING, NO_EDGES, NOTHING)
"""A batch without padding, of which only that matters."""

WEIGHTS: dict[str, Any] = {
    "edge_term_weight": 0.7,
    "kl_weight": 0.2,
    "sampling": False,
    "dropout": 0.0,
}


def setting(task: str, **changes: Any) -> tuple[VEPM, GraphBatch, Tensor, Config]:
    """A trained model in evaluation mode, its graphs as one batch, and the labelled rows."""
    config = SMALL[task].replace(**{**WEIGHTS, **changes})
    fitted = run(task, config)
    source, rows = fitted.source, roles(task)[0]
    if isinstance(source, GraphStore):
        return fitted.model, source.select(rows), torch.arange(rows.numel()), config
    assert isinstance(source, GraphBatch)
    return fitted.model, source, rows, config


def terms_by_hand(
    model: VEPM, batch: GraphBatch, rows: Tensor, balanced: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, edges and divergence at the posterior mean."""
    out = model(batch.x, batch.edges, batch.batch, batch.num_graphs)
    task = -torch.nn.functional.cross_entropy(out.logits[rows], batch.y[rows], reduction="none")
    edges = edge_log_likelihood(
        out.z, model.activation, batch.edges.edge_index, batch.batch, balanced=balanced
    )
    kl = kl_divergence(out.posterior, Gamma(torch.tensor(1.0), torch.tensor(1.0)))
    if balanced:
        return task.mean(), edges.mean(), kl.mean()
    nodes = batch.x.size(0)
    return task.sum() / nodes, edges.sum() / nodes, kl.sum() / nodes


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_losses_are_the_weighted_terms(task: str, balanced: bool) -> None:
    model, batch, rows, config = setting(task, likelihood="balanced" if balanced else "summed")
    labels, edges, kl = terms_by_hand(model, batch, rows, balanced)
    found = pretraining_loss(model, batch, config.training)
    torch.testing.assert_close(found.loss, 0.2 * kl - 0.7 * edges)
    found = bound_loss(model, batch, rows, config.training)
    torch.testing.assert_close(found.loss, 0.2 * kl - 0.7 * edges - labels)
    for term, expected in ((found.task, labels), (found.edges, edges), (found.kl, kl)):
        torch.testing.assert_close(term, expected)


@pytest.mark.parametrize("task", TASKS)
def test_predictor_learns_from_labels_alone_with_communities_held(task: str) -> None:
    model, batch, rows, config = setting(task)
    held = hold(model, batch, config.training)
    found = predictor_loss(model, batch, rows, held, config.training)
    labels, _, _ = terms_by_hand(model, batch, rows, balanced=True)
    torch.testing.assert_close(found.loss, -labels)
    assert (found.edges, found.kl) == (None, None)
    gradients = torch.autograd.grad(found.loss, model.encoder_parameters(), allow_unused=True)
    assert all(gradient is None for gradient in gradients)


@pytest.mark.parametrize("task", TASKS)
def test_labels_count_by_the_weights_of_their_classes(task: str) -> None:
    model, batch, rows, config = setting(task)
    weights = 0.5 + torch.arange(int(batch.y.max()) + 1)
    held, y = hold(model, batch, config.training), batch.y[rows]
    found = predictor_loss(model, batch, rows, held, config.training, class_weights=weights)
    logits = model(batch.x, batch.edges, batch.batch, batch.num_graphs).logits[rows]
    each = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    torch.testing.assert_close(found.loss, (weights[y] * each).mean())


def test_held_communities_are_the_encoders_and_leave_its_mode_alone() -> None:
    model, batch, _, config = setting("node")
    model.train()
    held = hold(model, batch, config.training)
    assert model.encoder.training
    model.eval()
    with torch.no_grad():
        mean = model.encode(batch.x, batch.edges).mean
        torch.testing.assert_close(held.z, mean)
        torch.testing.assert_close(held.edge_weight, model.split_edges(mean, batch.edges))
    assert not held.z.requires_grad


def test_held_communities_last_as_long_as_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Held] = []

    def watched(model: VEPM, batch: GraphBatch, rows: Tensor, held: Held, *rest: Any) -> Any:
        seen.append(held)
        return predictor_loss(model, batch, rows, held, *rest)

    monkeypatch.setattr(loop, "predictor_loss", watched)
    run("node", SMALL["node"].replace(scheme="alternating", encoder_interval=3, epochs=7))
    first, second, third = seen[:3], seen[3:6], seen[6:]
    for cycle in (first, second, third):
        assert all(torch.equal(held.z, cycle[0].z) for held in cycle)
        assert all(torch.equal(held.edge_weight, cycle[0].edge_weight) for held in cycle)
    assert not torch.allclose(first[0].z, second[0].z)
    assert not torch.allclose(second[0].z, third[0].z)


def test_draws_are_noisy_only_when_sampling() -> None:
    model, batch, _, config = setting("node")
    torch.manual_seed(0)
    means = [hold(model, batch, config.training).z for _ in range(2)]
    draws = [hold(model, batch, config.replace(sampling=True).training).z for _ in range(2)]
    assert torch.equal(means[0], means[1])
    assert not torch.allclose(draws[0], draws[1])


def test_disagreement_by_hand() -> None:
    logits = [torch.tensor([[0.8, 0.2]]).log(), torch.tensor([[0.4, 0.6]]).log()]
    # The mean (0.6, 0.4), squared and made to sum to one, is (9, 4) / 13.
    target = torch.tensor([9 / 13, 4 / 13])
    expected = sum(float((p.exp()[0] - target).square().sum()) for p in logits) / 2
    assert float(disagreement(logits, ROWS)) == pytest.approx(expected, rel=1e-5)
    assert float(disagreement(logits[:1], ROWS)) == 0


def test_classes_that_most_rows_favour_are_held_back() -> None:
    rows = torch.tensor([[0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    passes = [rows.log(), rows.log()]
    # Seven tenths of all is the first class: held back by that much, the second row has no lean.
    aligned = (rows / torch.tensor([0.7, 0.3])).square()
    target = aligned / aligned.sum(1, keepdim=True)
    expected = float((rows - target).square().sum())
    assert float(disagreement(passes, ROWS, 1.0)) == pytest.approx(expected, rel=1e-5)
    assert float(target[1, 0]) == pytest.approx(0.5)
    assert float(disagreement(passes, ROWS, 0.0)) == float(disagreement(passes, ROWS))
    mask = torch.tensor([True, True, False])
    padded = GraphBatch(NOTHING, NO_EDGES, NOTHING, node_mask=mask, graph_mask=mask)
    alone = float(disagreement([p[:2] for p in passes], ROWS, 0.5))
    assert float(disagreement(passes, padded, 0.5)) == pytest.approx(alone, rel=1e-5)


def test_class_balance_counts_labels_per_class() -> None:
    config = SMALL["node"].replace(passes=2, dropout=0.0, sampling=False, consistency_weight=1.0)
    model = run("node", config).model
    batch, rows = source_of("node"), roles("node")[0]
    assert isinstance(batch, GraphBatch)

    def spread(weight: float, rows: torch.Tensor) -> float:
        training = config.replace(class_balance_weight=weight).training
        found = bound_loss(model, batch, rows, training).disagreement
        assert found is not None
        return found.item()

    half = rows[: rows.numel() // 2]
    whole = 2 * half.numel() / rows.numel()
    assert spread(1.0, half) != pytest.approx(spread(1.0, rows), rel=1e-3)
    assert spread(whole / 2, half) == pytest.approx(spread(1.0, rows), rel=1e-4)


def test_several_passes_count_as_one_set_of_labels() -> None:
    config = SMALL["node"].replace(passes=3, dropout=0.0, sampling=False, consistency_weight=2.0)
    model = run("node", config).model
    batch, rows = source_of("node"), roles("node")[0]
    assert isinstance(batch, GraphBatch)
    once = bound_loss(model, batch, rows, config.replace(passes=1).training)
    thrice = bound_loss(model, batch, rows, config.training)
    assert once.task is not None
    assert thrice.task is not None
    torch.testing.assert_close(thrice.task, once.task)
    assert thrice.disagreement is not None
    # Passes agree without noise, but a sharper target still asks for confidence.
    torch.testing.assert_close(thrice.loss - once.loss, 2 * thrice.disagreement)
    assert thrice.correct is not None
    assert 0 <= int(thrice.correct) <= rows.numel()
