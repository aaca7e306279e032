"""Which communities argued for a label: the model's own word, checked against brute force."""

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from training.toys import SMALL, toy
from vepm.nn import VEPM
from vepm.scale.batches import GraphBatch, GraphStore
from vepm.training import Config, ModelCard, in_batches
from vepm.training.prediction import attribute


def trained(task: str, **changes: Any) -> tuple[VEPM, GraphBatch | GraphStore, Tensor]:
    """A model with weights that are not symmetric, its data and the labels it gives."""
    data = toy(task)
    torch.manual_seed(0)
    config = SMALL[task].replace(**changes)
    model = ModelCard(data.task, data.num_features, config, data.class_names).build().eval()
    source = in_batches(data, torch.device("cpu"), Config())
    assert isinstance(source, GraphBatch | GraphStore)
    return model, source, scores(model, source).argmax(1)


@torch.no_grad()
def scores(model: VEPM, source: GraphBatch | GraphStore) -> Tensor:
    batch = source if isinstance(source, GraphBatch) else source.select(torch.arange(len(source)))
    logits: Tensor = model(batch.x, batch.edges, batch.batch, batch.num_graphs).logits
    return logits


def log_odds(scores: Tensor, labels: Tensor) -> Tensor:
    p = torch.softmax(scores.double(), dim=1)[torch.arange(len(labels)), labels]
    return torch.log(p / (1 - p)).float()


def muted(model: VEPM, k: int) -> Any:
    """The model with a bank that says the same of every node in the name of community k."""
    whole = model.bank.forward

    def forward(*args: Any) -> list[Tensor]:
        states = whole(*args)
        kept = torch.arange(states[0].size(1))[:, None] != k
        return [torch.where(kept, state, state.mean(0, keepdim=True)) for state in states]

    return mock.patch.object(model.bank, "forward", forward)


@pytest.mark.parametrize("changes", [{}, {"bank_layers": 2}, {"composer": "fc"}])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_it_is_what_the_model_says_without_a_community(task: str, changes: dict[str, Any]) -> None:
    model, source, labels = trained(task, **changes)
    found = attribute(model, source, labels)
    torch.testing.assert_close(found.log_odds, log_odds(scores(model, source), labels))
    for k in range(found.log_odds_without.size(1)):
        with muted(model, k):
            without = scores(model, source)
        torch.testing.assert_close(found.log_odds_without[:, k], log_odds(without, labels))
        assert torch.equal(found.label_without[:, k], without.argmax(1))
    assert found.log_odds_without.std(1).max() > 0


@pytest.mark.parametrize("inputs", ["both", "random"])
def test_a_community_nobody_listens_to_supports_nothing(inputs: str) -> None:
    """With random features, too, which must be the same with and without it."""
    model, source, _ = trained("node", inputs=inputs)
    width = model.bank.out_channels // SMALL["node"].model.num_metacommunities
    with torch.no_grad():
        dict(model.named_parameters())["composer.layers.0.linear.weight"][:, :width] = 0
    labels = torch.zeros(len(source.y), dtype=torch.long)
    found = attribute(model, source, labels)
    support = found.log_odds[:, None] - found.log_odds_without
    torch.testing.assert_close(support[:, 0], torch.zeros(len(labels)))
    assert support[:, 1:].abs().max() > 0


def test_graphs_in_pieces_keep_their_own_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source, labels = trained("graph")
    assert isinstance(source, GraphStore)
    whole = attribute(model, source, labels)
    del source.pieces
    monkeypatch.setattr("vepm.scale.batches.GRAPHS_AT_ONCE", 3)
    parts = attribute(model, source, labels)
    torch.testing.assert_close(parts.log_odds, whole.log_odds)
    assert parts.log_odds_without.shape == whole.log_odds_without.shape
