"""Sparse features do what the same dense features do."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strategies import path, quick, random_graph, scramble, seeds, sparse_of, uniform
from vepm import VEPM
from vepm.kernels.dropout import drop_rows, dropout
from vepm.kernels.features import dense, normalize_rows, row_mass
from vepm.nn import SparseFeatures, compact
from vepm.nn.convolution import CommunityLinear


def mostly_zero(seed: int, rows: int, columns: int, filled: float = 0.2) -> Tensor:
    kept = uniform(seed, rows, columns, low=0, high=1) < filled
    return uniform(seed + 1, rows, columns, low=-1) * kept


@given(st.integers(0, 6), st.integers(1, 6), st.floats(0, 1), seeds)
@quick
def test_products_and_their_gradients_equal_dense_ones(
    rows: int, columns: int, filled: float, seed: int
) -> None:
    x = mostly_zero(seed, rows, columns, filled)
    weight = uniform(seed + 2, columns, 3, low=-1).requires_grad_()
    direction = uniform(seed + 3, rows, 3, low=-1)
    ours, theirs = sparse_of(x) @ weight, x @ weight
    torch.testing.assert_close(ours, theirs)
    for our, their in zip(
        torch.autograd.grad(ours, [weight], direction),
        torch.autograd.grad(theirs, [weight], direction),
        strict=True,
    ):
        torch.testing.assert_close(our, their)


def test_gradients_match_finite_differences() -> None:
    x, weight = sparse_of(mostly_zero(0, 4, 5)), uniform(1, 5, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: x @ w, (weight,))


@given(st.integers(0, 6), st.integers(1, 6), st.floats(0, 1), seeds)
@quick
def test_row_operations_equal_dense_ones(rows: int, columns: int, filled: float, seed: int) -> None:
    x = mostly_zero(seed, rows, columns, filled)
    sparse = sparse_of(x)
    assert dense(sparse).equal(x)
    assert (sparse.size(0), sparse.size(1), sparse.shape) == (rows, columns, (rows, columns))
    torch.testing.assert_close(row_mass(sparse), row_mass(x))
    for norm in "none", "l1", "l2":
        ours, theirs = dense(normalize_rows(sparse, norm)), dense(normalize_rows(x, norm))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("norm", "power"), [("l1", 1), ("l2", 2)])
def test_normalised_rows_have_length_one_or_stay_zero(norm: str, power: int) -> None:
    x = torch.tensor([[3.0, -4.0], [0.0, 0.0]])
    for features in x, sparse_of(x):
        lengths = dense(normalize_rows(features, norm)).norm(p=power, dim=1)
        assert lengths.tolist() == pytest.approx([1, 0])


def test_dropout_leaves_zeros_alone_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.zeros(400, 100)
    x[:, ::5] = 1.0
    sparse = sparse_of(x)
    dropped = dense(dropout(sparse, 0.5, training=True))
    assert dropped[x == 0].eq(0).all()
    assert set(dropped[x == 1].unique().tolist()) == {0.0, 2.0}
    assert dropped[x == 1].mean().item() == pytest.approx(1, abs=0.06)
    assert dense(dropout(sparse, 0.5, training=False)).equal(x)
    assert dense(sparse).equal(x)


def test_only_mostly_zero_features_are_kept_sparse() -> None:
    assert isinstance(compact(torch.eye(8)), SparseFeatures)
    for x in torch.ones(3, 3), torch.eye(4), torch.zeros(0, 5):
        assert compact(x) is x


def test_a_sequence_of_inputs_stands_for_their_concatenation() -> None:
    linear = CommunityLinear(7, 2, heads=3).double()
    scramble(linear)
    x, z = mostly_zero(0, 5, 4), uniform(1, 5, 3)
    together = linear(torch.cat([x, z], dim=1))
    torch.testing.assert_close(linear([sparse_of(x), z]), together)
    torch.testing.assert_close(linear([x, z]), together)


@pytest.mark.parametrize("fusion", ["concat", "mass"])
@pytest.mark.parametrize("inputs", ["x", "z", "both"])
@pytest.mark.parametrize(("task", "conv"), [("node", "gcn"), ("graph", "gin")])
def test_the_model_reads_sparse_features_as_dense_ones(
    task: str, conv: str, inputs: str, fusion: str
) -> None:
    model = VEPM(
        9,
        2,
        task=task,
        conv=conv,
        inputs=inputs,
        fusion=fusion,
        num_communities=4,
        num_metacommunities=2,
        hidden_channels=4,
        bank_layers=2,
    )
    scramble(model)
    model.double().eval()
    graph, x = random_graph(7), mostly_zero(3, 7, 9)
    here = model(x, graph.edge_index)
    there = model(sparse_of(x), graph.edge_index)
    torch.testing.assert_close(there.logits, here.logits)
    torch.testing.assert_close(there.edge_weight, here.edge_weight)
    parameters = [p for p in model.parameters() if p.requires_grad]
    ours, theirs = (
        torch.autograd.grad(out.logits.sum(), parameters, allow_unused=True)
        for out in (there, here)
    )
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their)


def test_sparse_features_train_with_dropout_and_random_inputs() -> None:
    torch.manual_seed(0)
    x = compact(torch.eye(8))
    for inputs in "both", "random":
        model = VEPM(8, 2, inputs=inputs, dropout=0.5).train()
        out = model(x, path(8).edge_index)
        out.logits.sum().backward()
        assert out.logits.isfinite().all()
        assert model.get_parameter("bank.layers.0.linear.weight").grad is not None


@pytest.mark.parametrize("strip", [1, 2, 100])
def test_strips_of_the_transpose_add_up(strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.kernels.features.STRIP", strip)
    x = uniform(0, 60, 2, low=-1).relu()
    weight = uniform(1, 2, 3).requires_grad_()
    sparse = sparse_of(x)
    assert (sparse.transpose[-1][0] > 2) == (strip < 60)
    direction = uniform(2, 60, 3)
    (ours,) = torch.autograd.grad(sparse @ weight, [weight], direction)
    torch.testing.assert_close(ours, x.t() @ direction)


def test_rows_are_normalised_once_per_norm_and_values() -> None:
    x = sparse_of(torch.eye(3) * 2)
    assert normalize_rows(x, "l2") is normalize_rows(x, "l2")
    assert normalize_rows(x, "l1") is not normalize_rows(x, "l2")
    other = normalize_rows(x.with_values(-x.values), "l2")
    torch.testing.assert_close(dense(other), -torch.eye(3))


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.9])
def test_dropout_keeps_its_share_and_its_mean(probability: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(100_000)
    kept = dropout(x, probability, training=True)
    assert isinstance(kept, Tensor)
    assert float((kept == 0).double().mean()) == pytest.approx(probability, abs=0.01)
    assert float(kept.mean()) == pytest.approx(1, abs=0.02)
    assert set(kept.unique().tolist()) <= {0.0, float(torch.tensor(1 / (1 - probability)))}
    assert dropout(x, probability, training=False) is x


def test_a_gpu_keeps_zeros_while_memory_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = torch.empty(8, 8, device="meta")
    assert compact(elsewhere) is elsewhere
    monkeypatch.setattr("vepm.kernels.features.MOST_DENSE", 63)
    # Now it matters how many zeros there are, which tensors without values do not know.
    with pytest.raises(RuntimeError):
        compact(elsewhere)


def test_dropped_rows_are_dropped_in_every_part() -> None:
    x, z = (torch.rand(50, 9) < 0.2).float(), torch.ones(50, 2)
    torch.manual_seed(0)
    first, second = drop_rows([sparse_of(x), z], 0.4, training=True)
    assert isinstance(second, Tensor)
    kept = second[:, :1] > 0
    assert 0 < kept.sum() < 50
    torch.testing.assert_close(second, z * kept / 0.6)
    torch.testing.assert_close(dense(first), x * kept / 0.6)
    parts = [x, z]
    assert drop_rows(parts, 0.4, training=False) is parts


@pytest.mark.parametrize("probability", [0.4, 0.8, 1e-9])
def test_dropout_by_bits_is_dropout(probability: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.kernels.dropout.MANY_DRAWS", 1000)
    x, weight = uniform(0, 401, 7, 5).add(1).requires_grad_(), uniform(1, 401, 7, 5)
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        dropped = dropout(x, probability, training=True)
        assert isinstance(dropped, Tensor)
        found.append((dropped, *torch.autograd.grad(dropped, x, weight)))
    again, (dropped, gradient) = found
    assert all(map(torch.equal, again, (dropped, gradient)))
    kept = dropped != 0
    share = float(kept.double().mean())
    assert share == pytest.approx(1 - probability, abs=0.02)
    # Every quarter of a draw counts.
    assert not torch.equal(kept[:28], kept[28:56]) or probability < 0.1
    factor = 1 / (1 - probability)
    torch.testing.assert_close(dropped, torch.where(kept, x * factor, 0), rtol=1e-4, atol=0)
    torch.testing.assert_close(gradient, torch.where(kept, weight * factor, 0), rtol=1e-4, atol=0)


def test_dropout_by_bits_of_nearly_everything_stays_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.kernels.dropout.MANY_DRAWS", 1000)
    found = dropout(torch.ones(400, 7), 1 - 1e-9, training=True)
    assert isinstance(found, Tensor)
    assert found.isfinite().all()
