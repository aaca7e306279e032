"""Features that come again with the same edges are summed over neighbours once."""

import pytest
import torch
from torch import Tensor

from strategies import random_graph, scramble, uniform
from vepm import VEPM
from vepm.kernels.features import Features, normalize_rows
from vepm.nn import Adjacency, SparseFeatures, smoothing
from vepm.nn.convolution import plain_propagation
from vepm.nn.smoothing import smoothed

GRAPH = random_graph(9)


@pytest.fixture(autouse=True)
def every_graph_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoothing, "FEWEST_EDGES", 0)


def sums(x: Features, edges: Adjacency, norm: str = "l2") -> Tensor | None:
    found = smoothed(x, edges, norm)
    return None if found is None else found.values


def test_the_second_time_brings_gcn_sums_and_later_times_the_same() -> None:
    x, edges = uniform(0, 9, 4), Adjacency(*GRAPH)
    assert sums(x, edges) is None
    second = sums(x, edges)
    assert second is not None
    rows = normalize_rows(x, "l2")
    assert isinstance(rows, Tensor)
    expected = plain_propagation(edges, x, "gcn").spread(rows[:, None], edges).squeeze(1)
    torch.testing.assert_close(second, expected)
    assert sums(x, edges) is second


def test_features_that_were_written_to_are_new_features() -> None:
    x, edges = uniform(0, 9, 4), Adjacency(*GRAPH)
    sums(x, edges, "none")
    before = sums(x, edges, "none")
    assert before is not None
    x.mul_(2)
    assert sums(x, edges, "none") is None
    after = sums(x, edges, "none")
    assert after is not None
    torch.testing.assert_close(after, 2 * before)


def test_other_features_and_other_norms_are_not_mixed_up() -> None:
    x, other, edges = uniform(0, 9, 4), uniform(1, 9, 4), Adjacency(*GRAPH)
    for _ in range(2):
        assert sums(x, edges, "none") is None
        assert sums(other, edges, "none") is None
    assert sums(x, edges, "l1") is None
    assert sums(x, edges, "l1") is not None


def test_sums_are_not_kept_where_they_are_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    x, edges = uniform(0, 9, 4), Adjacency(*GRAPH)
    with torch.inference_mode():
        passing = uniform(0, 9, 4)
    for _ in range(2):
        assert smoothed(x, GRAPH.edge_index, "l2") is None
        assert sums(SparseFeatures.from_dense(x), edges) is None
        assert sums(x.clone().requires_grad_(), edges) is None
        assert sums(passing, edges) is None
    assert edges.seen == {}
    monkeypatch.setattr(smoothing, "FEWEST_EDGES", GRAPH.edge_index.size(1) + 1)
    assert [sums(x, edges), sums(x, edges)] == [None, None]


@pytest.mark.parametrize("conv", ["gcn", "gin"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_model_says_the_same_every_time(conv: str, layers: int) -> None:
    torch.manual_seed(0)
    model = VEPM(4, 2, num_communities=8, conv=conv, encoder_layers=layers).double().eval()
    scramble(model)
    x, edges = uniform(0, 9, 4), Adjacency(*GRAPH)
    found = []
    for _ in range(3):
        mean = model.encode(x, edges).mean
        found.append([mean, *torch.autograd.grad(mean.sum(), list(model.encoder.parameters()))])
    assert bool(edges.seen) == (conv == "gcn")
    for again in found[1:]:
        for ours, first in zip(again, found[0], strict=True):
            torch.testing.assert_close(ours, first)
