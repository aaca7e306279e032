import logging
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from vepm.data import as_dataset
from vepm.data.canonical import canonical_edges
from vepm.errors import InputError

edge_lists = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30),
    )
)


def as_edge_index(pairs: list[tuple[int, int]]) -> torch.Tensor:
    return torch.tensor(pairs, dtype=torch.long).view(-1, 2).t()


@given(edge_lists)
def test_any_edge_list_becomes_canonical(case: tuple[int, list[tuple[int, int]]]) -> None:
    num_nodes, pairs = case
    edge_index, _ = canonical_edges(as_edge_index(pairs), num_nodes)
    expected = {(i, j) for i, j in pairs if i != j} | {(j, i) for i, j in pairs if i != j}
    by_destination = sorted(expected, key=lambda pair: (pair[1], pair[0]))
    assert [tuple(pair) for pair in edge_index.t().tolist()] == by_destination


@given(edge_lists)
def test_canonical_edges_need_no_correction(case: tuple[int, list[tuple[int, int]]]) -> None:
    num_nodes, pairs = case
    once, _ = canonical_edges(as_edge_index(pairs), num_nodes)
    twice, found = canonical_edges(once, num_nodes)
    assert twice.equal(once)
    assert found == []


def test_corrections_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    data = Data(edge_index=as_edge_index([(0, 0), (0, 1), (0, 1), (1, 0), (1, 2)]))
    with caplog.at_level(logging.INFO, logger="vepm"):
        as_dataset(data, name="mine")
    line = "mine: removed 1 self-loop, merged 1 duplicate edge, added 1 missing reverse edge"
    assert line in caplog.messages


@pytest.mark.parametrize("pairs", [[(0, 0)], [(0, 1)], [(0, 1), (0, 1), (1, 0)]])
def test_strict_refuses_what_would_be_corrected(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(InputError, match="strict=False"):
        as_dataset(Data(edge_index=as_edge_index(pairs), num_nodes=2), strict=True)


def test_strict_accepts_what_is_canonical() -> None:
    data = Data(edge_index=as_edge_index([(1, 0), (0, 1)]), num_nodes=3)
    assert as_dataset(data, strict=True).graphs[0].x.size(0) == 3


def test_types_and_masks_are_right_and_the_input_is_left_alone() -> None:
    data = Data(
        x=torch.eye(3, dtype=torch.float64),
        edge_index=torch.tensor([[0], [1]], dtype=torch.int32),
        y=torch.tensor([[0.0], [1.0], [-1.0]]),
        test_mask=torch.tensor([0, 1, 1]),
        edge_attr=torch.ones(1, 4),
    )
    result = as_dataset(data).graphs[0]
    assert result.x.dtype == torch.float32
    assert result.edge_index.dtype == result.y.dtype == torch.long
    assert result.y.tolist() == [0, 1, -1]
    assert result.train_mask.tolist() == [True, False, False]
    assert result.val_mask.tolist() == [False, False, False]
    assert result.test_mask.tolist() == [False, True, False]
    assert "edge_attr" not in result
    assert data.edge_index.shape == (2, 1)


def test_a_graph_without_features_gets_its_degrees() -> None:
    data = Data(edge_index=as_edge_index([(0, 1), (1, 0)]), num_nodes=3)
    assert as_dataset(data).graphs[0].x[:, :2].tolist() == [
        [1.0, pytest.approx(math.log(2))],
        [1.0, pytest.approx(math.log(2))],
        [1.0, 0.0],
    ]


def test_training_on_held_out_nodes_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    both = torch.tensor([True, False])
    as_dataset(
        Data(edge_index=as_edge_index([]), y=torch.tensor([0, 1]), train_mask=both, test_mask=both)
    )
    assert "also in the validation or test part" in caplog.text


def graph(**changes: object) -> Data:
    fields = {"x": torch.ones(3, 2), "edge_index": as_edge_index([(0, 1), (1, 0)])}
    return Data(**{**fields, **changes})


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Data(x=torch.ones(2, 1)), "edge_index is missing"),
        (graph(edge_index=torch.zeros(3, 2, dtype=torch.long)), r"edge_index is \[3, 2\]"),
        (graph(edge_index=torch.zeros(2, 2)), "tensor of integers is needed"),
        (graph(edge_index=as_edge_index([(0, 1), (1, 3)])), "edge 1 joins 1 and 3"),
        (graph(edge_index=as_edge_index([(-1, 0)])), "joins -1 and 0"),
        (graph(x=torch.ones(3)), r"shape \[3\]"),
        (graph(x=torch.ones(3, 0)), "have 0 columns"),
        (graph(x=[["a"], ["b"], ["c"]]), "not all numbers"),
        (graph(x=torch.tensor([[1, 2], [3, math.nan], [5, 6]])), "node 1, column 1 is nan"),
        (graph(x=torch.tensor([[1, 2], [3, 4], [math.inf, 6]])), "node 2, column 0 is inf"),
        (graph(y=torch.tensor([0, 1])), r"y is \[2\]"),
        (graph(y=torch.zeros(3, 3)), r"y is \[3, 3\]"),
        (graph(y=torch.tensor([0, 1.5, 1])), "label 1: label .1.5. is not an integer"),
        (graph(y=torch.tensor([0, math.nan, 1])), "not an integer"),
        (graph(y=torch.tensor([0, -100, 1])), "label '-100' is not an integer from 0"),
        (graph(train_mask=torch.tensor([True])), r"train_mask: is \[1\]"),
        (graph(train_mask=torch.tensor([0, 1, 2])), "other than 0 and 1"),
        (graph(train_mask=torch.zeros(3, 0, dtype=torch.bool)), r"is \[3, 0\]"),
        (Data(edge_index=as_edge_index([])), "no nodes"),
    ],
)
def test_bad_graphs_are_refused(bad: Data, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_dataset(bad, "node")
