"""Columns at one scale: which are standardised, which stay, and that size does not matter."""

import pytest
import torch
from torch import Tensor

from vepm.data import as_dataset, load, planted_graph
from vepm.data.features import NUM_POSITIONS
from vepm.data.scaling import Scaling, needs_coordinates, with_coordinates

GENERATOR = torch.Generator().manual_seed(0)
NORMAL = torch.randn(200, generator=GENERATOR)
YES = (torch.rand(200, generator=GENERATOR) < 0.8).float()
COUNTS = torch.randint(1, 9, (200,), generator=GENERATOR) * (torch.arange(200) % 3 == 0)
AMOUNT = 1e6 * (torch.arange(200) % 4 == 0)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (40 + 10 * NORMAL, "dense"),
        (1e-27 * NORMAL, "dense"),
        (3e19 * NORMAL, "dense"),
        (1e30 + 1e24 * NORMAL, "dense"),
        (2 * YES - 1, "dense"),
        (YES, "kept"),
        (1 - YES, "kept"),
        (COUNTS, "kept"),
        (AMOUNT, "dense"),
        (torch.full((200,), 7.0), "constant"),
        (torch.full((200,), 0.1), "constant"),
        (torch.zeros(200), "constant"),
    ],
)
def test_each_kind_of_column(column: Tensor, kind: str) -> None:
    x = torch.stack([column.float(), YES, 1 - YES], dim=1)
    scaling = Scaling.of(x)
    found = scaling(x)[:, 0]
    assert scaling.kept.tolist() == [kind == "kept", True, True]
    assert found.isfinite().all()
    if kind == "dense":
        torch.testing.assert_close(found.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
        torch.testing.assert_close(found.std(correction=0), torch.tensor(1.0))
    else:
        assert found.count_nonzero() == (0 if kind == "constant" else column.count_nonzero())


def test_rows_have_length_one_in_each_block() -> None:
    dense = 5 + 3 * torch.randn(500, 40, generator=GENERATOR)
    words = (torch.rand(500, 100, generator=GENERATOR) < 0.1).float()
    positions = torch.randn(500, 16, generator=GENERATOR)
    x = torch.cat([dense, words, positions], dim=1)
    found = Scaling.of(x, num_positions=16)(x)
    torch.testing.assert_close(found[:, 40:140].norm(dim=1), torch.ones(500))
    for block in (found[:, :40], found[:, 140:]):
        assert block.square().sum(1).mean() == pytest.approx(1, abs=0.05)
    assert found[:, 140:].equal(positions / 4)


@pytest.mark.parametrize("size", [1.0, 1e-27, 3e19])
def test_bags_of_words_keep_their_zeros_and_proportions_at_any_size(size: float) -> None:
    words = torch.randint(-30, 4, (50, 30), generator=GENERATOR).clamp(min=0)
    x = size * words.float()
    expected = torch.nn.functional.normalize(words.float())
    found = Scaling.of(x)(x)
    torch.testing.assert_close(found, expected)
    assert ((found == 0) == (words == 0)).all()
    sparse = x.to_sparse_coo().coalesce()
    scaled = Scaling.of(sparse)(sparse)
    assert scaled.is_sparse
    torch.testing.assert_close(scaled.to_dense(), expected)


def test_new_rows_are_scaled_as_in_training() -> None:
    x = torch.stack([40 + 10 * NORMAL, YES], dim=1)
    scaling = Scaling.of(x)
    kept = Scaling.from_tensors(scaling.tensors(), 2)
    assert kept(x[3:4]).equal(scaling(x)[3:4])
    with pytest.raises(ValueError, match="scales are"):
        Scaling.from_tensors(scaling.tensors(), 3)
    with pytest.raises(ValueError, match="scales are"):
        Scaling.from_tensors(scaling.tensors() | {"factor": torch.full((2,), torch.nan)}, 2)


def test_coordinates_are_for_one_graph_with_few_columns() -> None:
    wide, narrow = planted_graph(50, 2, num_features=16), planted_graph(50, 2, num_features=15)
    assert not needs_coordinates(wide)
    assert needs_coordinates(narrow)
    constant = wide.graphs[0].clone()
    constant.x[:, 0] = 1
    assert needs_coordinates(as_dataset(constant, task="node"))
    assert not needs_coordinates(load("KarateClub"))
    assert not needs_coordinates(load("digits-graphs"))
    found = with_coordinates(narrow)
    assert found.num_features == 15 + NUM_POSITIONS
    assert found.num_positions == NUM_POSITIONS
    assert with_coordinates(narrow) is found
    assert with_coordinates(found) is found
