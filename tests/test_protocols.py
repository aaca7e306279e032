import json
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data import planted_graph
from vepm.data.dataset import Dataset
from vepm.errors import InputError
from vepm.evaluation import (
    PROTOCOLS,
    RULES,
    Curve,
    RunResult,
    Split,
    Summary,
    capsgnn_folds,
    choose_epoch,
    evaluate,
    few_labels,
    gin_folds,
    keep_labels,
    mean_measures,
    protocol_for,
    protocol_named,
    public_split,
    summarise,
)


def graph_task(labels: list[int]) -> Dataset:
    edge_index = torch.empty(2, 0, dtype=torch.long)
    graphs = [Data(x=torch.ones(1, 1), edge_index=edge_index, y=torch.tensor([y])) for y in labels]
    names = tuple(str(c) for c in range(max(labels) + 1))
    return Dataset("toy", "graph", graphs, len(names), names)


def node_task(num_splits: int = 1) -> Dataset:
    masks = tuple(torch.arange(6) % 3 == part for part in range(3))
    data = Data(
        x=torch.ones(6, 1),
        edge_index=torch.empty(2, 0, dtype=torch.long),
        y=torch.tensor([0, 0, 0, 1, 1, 1]),
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
    )
    splits = tuple((masks[0], masks[1], masks[2]) for _ in range(num_splits))
    return Dataset(
        "nodes", "node", [data], 2, ("a", "b"), splits=splits if num_splits > 1 else None
    )


def indices(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.long)


def same(first: list[Split], second: list[Split]) -> bool:
    return all(
        a.test.equal(b.test) and a.train.equal(b.train) for a, b in zip(first, second, strict=True)
    )


def test_public_split_reads_the_masks() -> None:
    split = public_split(node_task())
    assert split.train.tolist() == [0, 3]
    assert split.val.tolist() == [1, 4]
    assert split.test.tolist() == [2, 5]


def test_public_split_of_graphs_without_one_is_refused() -> None:
    with pytest.raises(InputError, match="no public split"):
        public_split(graph_task([0, 1]))


def test_every_published_split_is_returned() -> None:
    splits = PROTOCOLS["wikics"](node_task(num_splits=20))
    assert len(splits) == 20
    assert len({split.name for split in splits}) == 20


def test_overlapping_or_empty_parts_are_refused() -> None:
    with pytest.raises(InputError, match="overlap"):
        Split("bad", indices(0, 1), indices(1), indices(2))
    with pytest.raises(InputError, match="empty"):
        Split("bad", indices(0, 1), indices(2), indices())


def test_random_gin_folds_are_disjoint_stratified_and_cover() -> None:
    dataset = graph_task([0] * 40 + [1] * 60)
    folds = gin_folds(dataset, seed=3)
    assert len(folds) == 10
    assert torch.cat([fold.test for fold in folds]).sort().values.tolist() == list(range(100))
    for fold in folds:
        assert fold.val.numel() == 0
        assert fold.train.numel() + fold.test.numel() == 100
        assert dataset.labels[fold.test].bincount().tolist() == [4, 6]


def test_published_folds_come_before_random_ones() -> None:
    dataset = graph_task([0, 1] * 20)
    published = tuple((torch.arange(4, 40), torch.arange(4)) for _ in range(10))
    with_folds = Dataset("toy", "graph", dataset.graphs, 2, ("0", "1"), folds=published)
    assert all(fold.test.tolist() == [0, 1, 2, 3] for fold in gin_folds(with_folds))
    assert same(gin_folds(with_folds, seed=1), gin_folds(with_folds, seed=2))


@pytest.mark.parametrize("protocol", ["gin", "capsgnn"])
def test_random_folds_follow_the_seed(protocol: str) -> None:
    dataset = graph_task([0, 1] * 30)
    splits = PROTOCOLS[protocol]
    assert same(splits(dataset, 5), splits(dataset, 5))
    assert not same(splits(dataset, 5), splits(dataset, 6))


def test_capsgnn_folds_validate_on_the_next_fold() -> None:
    folds = capsgnn_folds(graph_task([0] * 40 + [1] * 60))
    for fold, following in pairwise([*folds, folds[0]]):
        assert fold.val.equal(following.test)
        assert fold.train.numel() == 80
    assert torch.cat([fold.test for fold in folds]).unique().numel() == 100


def test_unlabelled_graphs_are_in_no_fold() -> None:
    folds = capsgnn_folds(graph_task([0] * 20 + [1] * 20 + [-1] * 5))
    assert int(torch.cat([fold.test for fold in folds]).max()) == 39


def test_too_few_graphs_for_the_folds() -> None:
    with pytest.raises(InputError, match="fewer folds"):
        gin_folds(graph_task([0, 1] * 4))
    assert len(gin_folds(graph_task([0, 1] * 4), num_folds=3)) == 3


@pytest.mark.parametrize(("rate", "counts"), [(1.0, [20, 10]), (0.5, [10, 5]), (0.01, [1, 1])])
def test_keep_labels_keeps_each_class_in_proportion(rate: float, counts: list[int]) -> None:
    labels = torch.tensor([0] * 20 + [1] * 10 + [0, 1])
    full = Split("full", torch.arange(30), indices(), indices(30, 31))
    kept = keep_labels(full, labels, rate, seed=1)
    assert labels[kept.train].bincount().tolist() == counts
    assert kept.test.equal(full.test)
    assert kept.name == ("full" if rate == 1 else f"full/keep-{rate:g}")


def test_lower_keep_rates_are_nested_and_seeded() -> None:
    labels = torch.arange(100) % 4
    full = Split("full", torch.arange(96), indices(), torch.arange(96, 100))
    half, tenth = (set(keep_labels(full, labels, rate, 2).train.tolist()) for rate in (0.5, 0.1))
    assert tenth < half
    assert half != set(keep_labels(full, labels, 0.5, 3).train.tolist())
    with pytest.raises(InputError, match="keep rate"):
        keep_labels(full, labels, 0.0)


CURVES = [
    {"val_accuracy": [0.5, 0.9, 0.7], "test_accuracy": [0.8, 0.4, 0.6]},
    {"val_accuracy": [0.6, 0.6, 0.5], "test_accuracy": [0.2, 0.6, 0.6]},
]


def summarised(curves: Sequence[Curve], rule: str) -> Summary:
    runs = [RunResult.from_curve("toy", "data", str(i), 0, curve) for i, curve in enumerate(curves)]
    return summarise(runs, rule)


@pytest.mark.parametrize(
    ("rule", "epochs", "values"),
    [
        ("gin", (2, 2), (0.6, 0.6)),
        ("fold-max", (0, 1), (0.8, 0.6)),
        ("last", (2, 2), (0.6, 0.6)),
        ("capsgnn", (1, 0), (0.4, 0.2)),
        ("validation", (1, 0), (0.4, 0.2)),
    ],
)
def test_rules_on_a_hand_made_matrix(
    rule: str, epochs: tuple[int, ...], values: tuple[float, ...]
) -> None:
    summary = summarised(CURVES, rule)
    assert summary.rule == rule
    assert summary.epochs == epochs
    assert summary.values == values
    assert summary.n == 2
    assert summary.mean == pytest.approx(sum(values) / 2)


def test_spread_is_the_sample_standard_deviation() -> None:
    summary = summarised(CURVES, "fold-max")
    assert summary.std == pytest.approx(0.2 / 2**0.5)
    assert summary.standard_error == pytest.approx(0.1)
    assert summarised(CURVES[:1], "last").std == 0.0


def test_runs_of_one_split_under_several_seeds_are_one_cluster() -> None:
    values = {("fold-0", 0): 0.8, ("fold-0", 1): 0.9, ("fold-1", 0): 0.4, ("fold-1", 1): 0.5}
    results = [
        RunResult.from_curve("toy", "MUTAG", split, seed, {"test_accuracy": [value]})
        for (split, seed), value in values.items()
    ]
    found = summarise(results, "last")
    # The means of the folds, 0.85 and 0.45, are all that is independent.
    assert found.standard_error == pytest.approx(0.2)
    assert found.std / found.n**0.5 < 0.13
    # On a single split, seeds are all that varies.
    alone = summarise(results[:2], "last")
    assert alone.standard_error == pytest.approx(0.05)


def test_measures_are_averaged_over_the_runs_that_have_them() -> None:
    rows = [{"precision": 1.0, "support": 2}, {"precision": 0.0, "support": 1}]
    measures: list[dict[str, Any]] = [
        {"roc_auc": 0.5, "macro_f1": 0.5, "per_class": rows},
        {"roc_auc": None, "macro_f1": 0.7, "per_class": rows[::-1]},
        {},
    ]
    results = [
        RunResult.from_curve("toy", "Cora", "public", i, CURVES[0], measures=found)
        for i, found in enumerate(measures)
    ]
    assert mean_measures(results) == {
        "roc_auc": 0.5,
        "macro_f1": pytest.approx(0.6),
        "per_class": [{"precision": 0.5, "support": 3}] * 2,
    }


def test_results_of_earlier_versions_have_no_measures() -> None:
    result = RunResult.from_curve("gcn", "Cora", "public", 3, CURVES[0])
    values = result.to_dict()
    del values["measures"]
    assert RunResult.from_dict(values) == result


def test_descriptions_say_whether_test_data_chose() -> None:
    for name, rule in RULES.items():
        honest = "nothing was chosen on test data" in rule.description
        assert honest == (name not in ("gin", "fold-max"))


def test_each_seed_has_an_epoch_of_its_own_for_all_its_folds() -> None:
    curves = {0: [[0.1, 0.8], [0.3, 0.6]], 1: [[0.9, 0.2], [0.7, 0.4]]}
    results = [
        RunResult.from_curve("toy", "MUTAG", f"fold-{fold}", seed, {"test_accuracy": curve})
        for seed, folds in curves.items()
        for fold, curve in enumerate(folds)
    ]
    found = summarise(results, "gin")
    assert found.epochs == (1, 1, 0, 0)
    assert found.mean == pytest.approx(0.75)
    # Seeds and folds may come in any order, and one seed alone is measured alike.
    assert summarise(results[::-1], "gin").mean == found.mean
    assert summarise(results[:2], "gin").mean == pytest.approx(0.7)


def test_ties_in_validation_go_to_the_lower_loss_then_the_first() -> None:
    assert choose_epoch([0.9, 0.9, 0.1], [0.5, 0.4, 0.1]) == 1
    assert choose_epoch([0.9, 0.9, 0.9], [0.4, 0.4, 0.4]) == 0
    tied = {**CURVES[1], "val_loss": [0.7, 0.6, 0.1]}
    assert summarised([tied], "capsgnn").epochs == (1,)


def test_rules_refuse_what_they_cannot_read() -> None:
    shorter = {"val_accuracy": [], "test_accuracy": [0.5]}
    with pytest.raises(InputError, match="equal length"):
        summarised([CURVES[0], shorter], "gin")
    with pytest.raises(InputError, match="no validation curve"):
        summarised([shorter], "capsgnn")
    with pytest.raises(InputError, match="no runs"):
        summarised([], "last")
    with pytest.raises(InputError, match="no selection rule 'best'"):
        summarise([], "best")
    with pytest.raises(InputError, match="no runs"):
        summarise([], "gin")


def test_results_survive_json() -> None:
    result = RunResult.from_curve("gcn", "Cora", "public", 3, CURVES[0], 1.5, {"dropout": 0.5})
    assert (result.best_epoch, result.val_accuracy, result.test_accuracy) == (1, 0.9, 0.4)
    assert RunResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    with pytest.raises(InputError, match="colour"):
        RunResult.from_dict({**result.to_dict(), "colour": "red"})


def test_without_validation_the_last_epoch_stands() -> None:
    curve = {"val_accuracy": [], "test_accuracy": [0.9, 0.3]}
    result = RunResult.from_curve("gin", "MUTAG", "fold-0", 0, curve)
    assert (result.best_epoch, result.val_accuracy, result.test_accuracy) == (1, None, 0.3)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_published_split_counts(count: int) -> None:
    assert len(PROTOCOLS["public"](node_task(num_splits=count))) == count


def test_evaluate_runs_every_split_with_every_seed() -> None:
    def method(dataset: Dataset, split: Split, seed: int) -> RunResult:
        return RunResult.from_curve("toy", dataset.name, split.name, seed, CURVES[0])

    seen: list[tuple[int, int]] = []
    dataset = node_task(num_splits=3)
    results = evaluate(
        method, dataset, PROTOCOLS["public"](dataset), range(2), lambda i, n, _: seen.append((i, n))
    )
    assert [(r.split, r.seed) for r in results[:3]] == [
        ("split-0", 0),
        ("split-0", 1),
        ("split-1", 0),
    ]
    assert seen[-1] == (6, 6)
    assert summarise(results, "last").n == 6


@pytest.mark.skipif("VEPM_DATA" not in os.environ, reason="VEPM_DATA names no folder of benchmarks")
@pytest.mark.parametrize(("name", "never_tested"), [("MUTAG", 8), ("PTC", 4), ("PROTEINS", 3)])
def test_published_folds_leave_a_few_graphs_untested(name: str, never_tested: int) -> None:
    from vepm.data import load

    dataset = load(name, os.environ["VEPM_DATA"])
    folds = gin_folds(dataset)
    tested = torch.cat([fold.test for fold in folds])
    assert tested.unique().numel() == tested.numel()
    assert len(dataset.graphs) - tested.numel() == never_tested


def test_few_labels_leave_most_nodes_to_be_tested() -> None:
    data = planted_graph(300, 3, seed=0)
    splits = few_labels(data)
    assert [split.name for split in splits] == [f"few-{i}" for i in range(10)]
    y = data.labels
    for split in splits:
        assert torch.bincount(y[split.train]).tolist() == [20, 20, 20]
        assert (split.val.numel(), split.test.numel()) == (80, 160)
    assert not torch.equal(splits[0].train, splits[1].train)
    assert torch.equal(few_labels(data)[3].test, splits[3].test)
    assert not torch.equal(few_labels(data, seed=1)[3].train, splits[3].train)


def test_few_labels_keep_half_of_a_small_class() -> None:
    split = few_labels(planted_graph(30, 3, average_degree=4, seed=0), num_splits=1)[0]
    assert split.train.numel() == 15


def test_few_labels_of_graphs() -> None:
    dataset = graph_task([0] * 300 + [1] * 60 + [2] * 6 + [-1] * 9)
    first, second = few_labels(dataset, seed=3, num_splits=2, labels_per_class=10)
    assert dataset.labels[first.train].bincount().tolist() == [10, 10, 3]
    assert (first.val.numel(), first.test.numel()) == (114, 229)
    assert int(torch.cat([first.train, first.val, first.test]).max()) == 365
    assert not same([first], [second])


def test_at_most_a_thousand_validate() -> None:
    dataset = planted_graph(4000, 2, seed=0)
    (split,) = few_labels(dataset, num_splits=1)
    assert (split.train.numel(), split.val.numel(), split.test.numel()) == (40, 1000, 2960)


def test_the_labels_of_a_class_may_stand_in_the_name_of_the_protocol() -> None:
    dataset = planted_graph(200, 2, seed=0)
    assert len(protocol_named("few-labels")(dataset)) == PROTOCOLS["few-labels"].num_splits == 10
    found = protocol_for("node", "few-labels-7")
    assert found.name == "few-labels-7"
    assert found(dataset, 0, 3)[2].train.numel() == 14
    for name in ("few-labels-0", "few-labels-x", "few-labels-1234567", "other"):
        with pytest.raises(InputError, match="no protocol"):
            protocol_named(name)
        with pytest.raises(InputError, match="no protocol"):
            protocol_for("node", name)


def test_nothing_is_left_to_test_of_too_few_labels() -> None:
    with pytest.raises(InputError, match="test part is empty"):
        few_labels(graph_task([0, 1]), num_splits=1)


def test_a_protocol_may_name_the_seed_of_its_splits() -> None:
    data = planted_graph(200, 2, seed=0)
    found = protocol_named("few-labels-20-1")(data)
    for split, expected in zip(found, few_labels(data, seed=1), strict=True):
        assert split.name == expected.name
        assert torch.equal(split.train, expected.train)
        assert torch.equal(split.test, expected.test)
    assert not torch.equal(found[0].train, few_labels(data)[0].train)
