"""``vepm evaluate``: means that can be recomputed, beside the rule that chose them."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.running import refused, succeed
from people import write_people

SHORT = ("--set", "epochs=3", "--set", "pretrain_epochs=2", "--device", "cpu", "--jobs", "1")


def evaluated(*words: str | Path) -> dict[str, Any]:
    outcome = succeed("evaluate", *words, "--json")
    assert outcome.err == ""
    result: dict[str, Any] = json.loads(outcome.out)
    return result


def check_summary(result: dict[str, Any], values: list[float]) -> None:
    assert result["mean"] == pytest.approx(np.mean(values))
    assert result["std"] == pytest.approx(np.std(values, ddof=1))
    assert result["n"] == len(values)


def test_mean_and_spread_of_seeds(pets: Path) -> None:
    result = evaluated(pets, "--seeds", "3", "--first-seed", "4", *SHORT)
    assert (result["dataset"], result["method"], result["rule"]) == ("pets", "vepm", "validation")
    assert [run["seed"] for run in result["runs"]] == [4, 5, 6]
    check_summary(result, [run["test_accuracy"] for run in result["runs"]])
    assert result["settings"]["training"]["epochs"] == 3
    assert "nothing was chosen on test data" in result["rules"]["validation"]["description"]


def test_measures_beside_accuracy(pets: Path) -> None:
    words = (pets, "--seeds", "2", *SHORT, "--set", "num_samples=2", "--baselines", "gcn")
    result = evaluated(*words)
    for found in (result, result["baselines"]["gcn"]):
        for run in found["runs"]:
            classes = run["per_class"]
            hits = sum(row["recall"] * row["support"] for row in classes)
            tested = sum(row["support"] for row in classes)
            assert hits / tested == pytest.approx(run["test_accuracy"])
        for name in ("macro_f1", "roc_auc"):
            mean = np.mean([run[name] for run in found["runs"]])
            assert found["measures"][name] == pytest.approx(mean)
    assert "sampled_accuracy" in result["measures"]
    table = succeed("evaluate", *words).out
    for name in ("macro F1", "ROC AUC", "accuracy by draws"):
        assert name in table
    assert f"{100 * result['measures']['macro_f1']:.2f}" in table


def test_seeds_trained_as_one_batch(pets: Path) -> None:
    words = (pets, "--seeds", "3", *SHORT)
    batched, alone = (
        evaluated(*words, *option)["runs"]
        for option in (("--runs-at-once", "3"), ("--runs-at-once", "1"))
    )
    assert [run["seed"] for run in batched] == [run["seed"] for run in alone] == [0, 1, 2]
    # The runs of a batch share its time evenly; others take their own.
    assert [len({run["seconds"] for run in runs}) for runs in (batched, alone)] == [1, 3]


def test_former_names_of_options_are_not_in_the_help() -> None:
    shown = succeed("evaluate", "--help").out
    assert "--runs-at-once" in shown
    assert "--together" not in shown
    assert len(evaluated("KarateClub", "--seeds", "2", "--together", "2", *SHORT)["runs"]) == 2


def test_without_validation_the_last_epoch_counts() -> None:
    result = evaluated("KarateClub", "--seeds", "2", *SHORT)
    assert result["rule"] == "last"
    check_summary(result, [run["test_accuracy"] for run in result["runs"]])


def test_three_rules_side_by_side_for_graphs(shapes: Path) -> None:
    words = (shapes, "--folds", "3", "--set", "patience=1", *SHORT)
    result = evaluated(*words)
    assert result["rule"] == "gin"
    assert list(result["rules"]) == ["gin", "fold-max", "last"]
    assert [run["split"] for run in result["runs"]] == ["fold-0", "fold-1", "fold-2"]
    means = {}
    for rule, summary in result["rules"].items():
        check_summary(summary, summary["values"])
        means[rule] = summary["mean"]
    assert means["fold-max"] >= means["gin"] >= means["last"]
    check_summary(result, result["rules"]["gin"]["values"])
    assert set(result["rules"]["last"]["epochs"]) == {2}
    table = succeed("evaluate", *words).out
    for rule, mean in means.items():
        line = next(line for line in table.splitlines() if f" {rule} " in line)
        assert f"{100 * mean:.2f}" in line
    assert "optimistic" in table


def test_validated_folds(shapes: Path) -> None:
    result = evaluated(shapes, "--protocol", "capsgnn", "--folds", "3", *SHORT)
    assert result["rule"] == "capsgnn"
    check_summary(result, [run["test_accuracy"] for run in result["runs"]])


def test_baselines_are_measured_alike(pets: Path, shapes: Path) -> None:
    result = evaluated(pets, "--method", "label-propagation", "--seeds", "2", "--jobs", "1")
    assert (result["method"], len(result["runs"])) == ("label-propagation", 2)
    words = (shapes, "--method", "wl", "--folds", "3", "--jobs", "1")
    assert list(evaluated(*words)["rules"]) == ["gin", "fold-max", "last"]


def test_of_one_run_there_is_no_spread(pets: Path) -> None:
    table = succeed("evaluate", pets, "--method", "label-propagation", "--jobs", "1").out
    assert " 0.00 " not in table


def test_baselines_read_numbers_in_any_unit(tmp_path: Path) -> None:
    rng, folder = np.random.default_rng(0), tmp_path / "sums"
    folder.mkdir()
    label, income = np.arange(60) % 2, 1e4 + 2e3 * rng.normal(size=60)
    rows = [f"{i},c{c},{c},{c + 0.1},{income[i]}" for i, c in enumerate(label)]
    (folder / "nodes.csv").write_text("\n".join(["id,label,yes,small,income", *rows]))
    links = [f"{a},{b}" for a, b in rng.integers(0, 60, (80, 2)) if a != b]
    (folder / "edges.csv").write_text("\n".join(["source,target", *dict.fromkeys(links)]))
    words = (folder, "--baselines", "mlp", "--device", "cpu", *SHORT[:4])
    few = ("--labels-per-class", "10", "--splits", "1", "--jobs", "1", "--json")
    found = json.loads(succeed("evaluate", *words, *few).out)["baselines"]["mlp"]
    assert found["mean"] == 1.0
    found = json.loads(succeed("train", *words, "-o", tmp_path / "run", "--json").out)
    assert found["baselines"]["mlp"]["test_accuracy"] == 1.0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            ("--protocol", "leave-one-out"),
            "no protocol 'leave-one-out' for node tasks; there are public",
        ),
        (("--protocol", "gin"), "no protocol 'gin' for node tasks"),
        (("--method", "foo"), "no baseline 'foo'; there are mlp"),
        (("--method", "gcn,mlp"), "no baseline 'gcn,mlp'"),
        (("--method", "gin"), "labels graphs"),
        (("--method", "gcn", "--set", "epochs=3"), "keep their published settings"),
        (("--method", "wl", "--set", "epochs=3"), "keep their published settings"),
        (("--method", "gcn", "--preset", "paper"), "keep their published settings"),
        (("--folds", "3"), "--folds is for gin and capsgnn, not for protocol public"),
        (("--set", "num_communities=2"), "metacommunities"),
        (("--device", "cuda:x"), "cuda"),
    ],
)
def test_wrong_requests_are_refused_before_any_run(
    options: tuple[str, ...], why: str, pets: Path
) -> None:
    assert why in refused("evaluate", pets, *options)


def test_folds_need_enough_graphs(shapes: Path) -> None:
    assert "fewer folds" in refused("evaluate", shapes, "--folds", "20")


@pytest.mark.skipif("VEPM_DATA" not in os.environ, reason="VEPM_DATA names no benchmarks")
def test_ten_folds_of_mutag() -> None:
    words = ("--set", "epochs=1", "--set", "pretrain_epochs=1", "--jobs", "1")
    result = evaluated("MUTAG", *words)
    assert len(result["runs"]) == 10
    assert list(result["rules"]) == ["gin", "fold-max", "last"]


def test_random_splits_with_few_labels_beside_baselines(tmp_path: Path) -> None:
    folder = tmp_path / "people"
    write_people(folder)
    words = (folder, "--labels-per-class", "6", "--splits", "3", *SHORT)
    result = evaluated(*words, "--baselines", "gcn,label-propagation")
    assert [run["split"] for run in result["runs"]] == ["few-0", "few-1", "few-2"]
    assert result["rule"] == "validation"
    check_summary(result, [run["test_accuracy"] for run in result["runs"]])
    assert list(result["baselines"]) == ["gcn", "label-propagation"]
    for name, found in result["baselines"].items():
        assert found["method"] == name
        check_summary(found, [run["test_accuracy"] for run in found["runs"]])
    assert result["baselines"]["label-propagation"]["mean"] > 0.5
    table = succeed("evaluate", *words, "--baselines", "label-propagation").out
    assert "label-propagation" in table
    assert "std. error" in table
    assert "in 6 runs" in table


def test_options_of_random_splits_that_do_not_go_together(pets: Path) -> None:
    assert "give --labels-per-class too" in refused("evaluate", pets, "--splits", "3", *SHORT)
    line = refused("evaluate", pets, "--labels-per-class", "3", "--protocol", "public", *SHORT)
    assert "not for protocol public" in line
