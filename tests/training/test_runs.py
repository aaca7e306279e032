"""A run folder is consistent: its metrics are those of its outputs."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import normalized_mutual_info_score as nmi
from torch import Tensor

from training.toys import SMALL, TASKS, predictions, roles, run, toy
from vepm.data import planted_relations
from vepm.errors import InputError
from vepm.evaluation import Split
from vepm.evaluation.executor import result_of
from vepm.measures import (
    accuracy,
    agreement_with_kinds,
    calibration_error,
    class_measures,
)
from vepm.nn import interactions
from vepm.report import read_run
from vepm.report.reading import METRICS, read_metrics
from vepm.runs import (
    HISTORY_COLUMNS,
    LARGEST_FEATURES,
    LAST,
    RULE,
    commit,
    describe_machine,
    neighbourhood,
    peak_memory,
    write_run,
)
from vepm.scale.large import LargeGraph
from vepm.training import Config, fit, load_model, probabilities
from vepm.training.fitting import NONE


def parts(task: str) -> dict[str, Tensor]:
    return dict(zip(("train", "val", "test"), roles(task), strict=True))


def written(
    folder: Path, task: str, split: dict[str, Tensor] | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Metrics and outputs of a short run, as its folder holds them."""
    split = parts(task) if split is None else split
    config = SMALL[task].replace(num_samples=3)
    fitted = run(task, config, train_on=split["train"], validate_on=split["val"], seed=4)
    metrics = write_run(folder, toy(task), fitted, split, {"note": "mine"})
    if split["train"].numel():
        outputs = load_file(folder / "outputs.safetensors")
        assert torch.equal(outputs["probabilities"], predictions(fitted))
    assert json.loads((folder / "metrics.json").read_text()) == metrics
    return metrics, load_file(folder / "outputs.safetensors")


@pytest.mark.parametrize("task", TASKS)
def test_metrics_are_those_of_the_outputs(task: str, tmp_path: Path) -> None:
    metrics, outputs = written(tmp_path, task)
    assert torch.equal(outputs["prediction"], outputs["probabilities"].argmax(1))
    for role, rows in parts(task).items():
        assert outputs[f"{role}_mask"].nonzero().flatten().equal(rows)
        assert metrics[f"num_{role}"] == rows.numel()
    for role in ("val", "test"):
        mask = outputs[f"{role}_mask"]
        expected = accuracy(outputs["probabilities"][mask], outputs["y"][mask])
        assert metrics[f"{role}_accuracy"] == expected
        measures = class_measures(outputs["probabilities"][mask], outputs["y"][mask])
        assert set(measures) == {"macro_f1", "roc_auc", "per_class"}
        assert measures == {name: metrics[f"{role}_{name}"] for name in measures}
    mask = outputs["test_mask"]
    assert metrics["ece"] == calibration_error(outputs["probabilities"][mask], outputs["y"][mask])
    assert (metrics["rule"], metrics["num_samples"]) == (RULE, 3)
    assert (metrics["seed"], metrics["task"], metrics["note"]) == (4, task, "mine")


def test_names_that_are_not_utf8_are_spelled_out(tmp_path: Path) -> None:
    odd = replace(toy("node"), name="pets\udcff", class_names=("a", "b\ud800", "c"))
    train, val, _ = roles("node")
    fitted = fit(odd, SMALL["node"], train_on=train, validate_on=val, device="cpu")
    metrics = write_run(tmp_path, odd, fitted, parts("node"), {"command": "vepm \udcff"})
    assert metrics == json.loads((tmp_path / "metrics.json").read_text())
    json.dumps(metrics, ensure_ascii=False).encode()
    assert (metrics["dataset"], metrics["class_names"][1]) == ("pets\\udcff", "b\\ud800")
    # The model itself must give back the classes that it was given.
    assert load_model(tmp_path / "model.safetensors")[1].class_names == odd.class_names


def test_agreement_is_that_of_the_memberships(tmp_path: Path) -> None:
    metrics, outputs = written(tmp_path, "node")
    heads = SMALL["node"].model.num_metacommunities
    hard = interactions(outputs["memberships"], outputs["activation"], heads).argmax(1)
    assert metrics["nmi"] == nmi(hard, outputs["y"])


def test_agreement_is_that_of_all_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    y = toy("node").labels
    # The first class is in two groups, the others are together in the first of them.
    hard = ((y == 0) & (torch.arange(len(y)) % 2 == 0)).long()
    monkeypatch.setattr("vepm.runs.interactions", lambda *_: torch.eye(2)[hard])
    metrics, _ = written(tmp_path, "node")
    assert 0 < metrics["nmi"] == nmi(hard, y) < 1


@pytest.mark.parametrize("task", TASKS)
def test_outputs_describe_every_node_and_edge(task: str, tmp_path: Path) -> None:
    _, outputs = written(tmp_path, task)
    graphs = toy(task).graphs
    nodes = sum(graph.num_nodes or 0 for graph in graphs)
    edges = sum(graph.num_edges for graph in graphs)
    model = SMALL[task].model
    assert outputs["memberships"].shape == (nodes, model.num_communities)
    assert outputs["edge_weight"].shape == (edges, model.num_metacommunities)
    assert torch.allclose(outputs["edge_weight"].sum(1), torch.ones(edges), atol=1e-6)
    assert torch.equal(outputs["features"], torch.cat([graph.x for graph in graphs]))
    if task == "graph":
        sizes = torch.bincount(outputs["batch"], minlength=len(graphs)).tolist()
        assert sizes == [graph.num_nodes for graph in graphs]


@pytest.mark.parametrize("task", TASKS)
def test_the_report_reads_what_is_written(task: str, tmp_path: Path) -> None:
    metrics, _ = written(tmp_path, task)
    found = read_run(tmp_path)
    assert found.metrics == metrics
    assert list(found.history) == list(HISTORY_COLUMNS)
    assert Config.from_toml((tmp_path / "config.toml").read_text()) == SMALL[task].replace(
        num_samples=3
    )
    _, card = load_model(tmp_path / "model.safetensors")
    assert (card.seed, card.class_names) == (4, toy(task).class_names)


@pytest.mark.parametrize("task", TASKS)
def test_reader_and_writer_agree_on_the_schema(task: str, tmp_path: Path) -> None:
    metrics, _ = written(tmp_path, task)
    assert read_metrics(tmp_path / "metrics.json") == metrics
    assert METRICS.keys() - metrics.keys() == {"excerpt_of", "baselines", "partitions"}
    assert metrics["versions"]["threads"] == torch.get_num_threads()


@pytest.mark.parametrize(
    "forged",
    [{"seed": "0"}, {"task": "nodes"}, {"num_classes": 2**21}, {"warnings": "none"}, {"parts": {}}],
    ids=lambda forged: next(iter(forged)),
)
def test_metrics_of_other_types_are_refused(forged: dict[str, Any], tmp_path: Path) -> None:
    metrics, _ = written(tmp_path, "node")
    (tmp_path / "metrics.json").write_text(json.dumps(metrics | forged))
    with pytest.raises(InputError, match=next(iter(forged))):
        read_metrics(tmp_path / "metrics.json")


SIZES = {"nodes": 1, "edges": 2}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("num_classes", [0, 2**20, None], [-1, 2**20 + 1]),
        ("val_accuracy", [0.0, 1.0, None], [-0.01, 1.01]),
        ("test_accuracy", [0.0, 1.0, None], [-0.01, 1.01]),
        ("excerpt_of", [SIZES], [[1], SIZES | {"edges": 2.5}]),
    ],
)
def test_metrics_have_bounds(name: str, good: list[Any], bad: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    for value in good:
        path.write_text(json.dumps({"dataset": "toy", "task": "node", name: value}))
        assert read_metrics(path)[name] == value
    for value in bad:
        path.write_text(json.dumps({"dataset": "toy", "task": "node", name: value}))
        with pytest.raises(InputError, match=f"metrics.json: {name} is "):
            read_metrics(path)


def test_without_validation_the_last_epoch_is_kept_and_said_so(tmp_path: Path) -> None:
    metrics, _ = written(tmp_path, "node", parts("node") | {"val": NONE})
    assert (metrics["rule"], metrics["val_accuracy"]) == (LAST, None)
    assert metrics["best_epoch"] == SMALL["node"].training.epochs - 1


def test_without_a_test_part_nothing_is_claimed(tmp_path: Path) -> None:
    metrics, _ = written(tmp_path, "graph", parts("graph") | {"test": NONE})
    assert metrics["test_accuracy"] is None
    assert "ece" not in metrics


def test_without_labels_nothing_is_predicted(tmp_path: Path) -> None:
    nobody = {"train": NONE, "val": NONE, "test": NONE}
    metrics, outputs = written(tmp_path, "node", nobody)
    assert metrics["test_accuracy"] is None
    assert "rule" not in metrics
    assert not {"probabilities", "prediction", "embeddings", "community_embeddings"} & set(outputs)


@pytest.mark.parametrize("spare", [0, -1])
def test_large_features_are_left_out(
    spare: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LARGEST_FEATURES == 10_000_000
    monkeypatch.setattr("vepm.runs.LARGEST_FEATURES", toy("node").features.numel() + spare)
    _, outputs = written(tmp_path, "node")
    assert ("features" in outputs) == (spare == 0)


def test_peak_memory_only_grows() -> None:
    before = peak_memory()["peak_memory_mib"]
    held = torch.ones(2**25)
    after = peak_memory()["peak_memory_mib"]
    assert 20 < before <= after < 2**20
    assert after >= held.numel() * 4 / 2**20


def test_commit_is_that_of_the_source_tree() -> None:
    found = commit()
    assert found is None or re.fullmatch(r"[0-9a-f]{40}\+?", found)
    assert describe_machine()["commit"] == found
    if (Path(__file__).parents[2] / ".git").exists() and shutil.which("git"):
        assert found is not None


def test_kinds_of_a_directed_graph_are_those_of_both_directions(tmp_path: Path) -> None:
    dataset = planted_relations(60, 2, 3, average_degree=4, seed=0)
    both = dataset.graphs[0]
    graph = both.clone()
    # One direction of every edge, in canonical order.
    kept = both.edge_index[0] < both.edge_index[1]
    graph.edge_index, graph.edge_kind = both.edge_index[:, kept], both.edge_kind[kept]
    graph.directed = True
    directed = replace(dataset, graphs=[graph])
    train = graph.train_mask.nonzero().flatten()
    others = (~graph.train_mask).nonzero().flatten()
    fitted = fit(directed, SMALL["node"], train_on=train, validate_on=NONE, watch=others)
    metrics = write_run(tmp_path, directed, fitted, {"train": train, "val": NONE, "test": NONE}, {})
    shares = load_file(tmp_path / "outputs.safetensors")["edge_weight"].double()
    assert len(shares) == both.num_edges
    for k, part in enumerate(metrics["parts"]):
        for name, of_kind in zip(dataset.kind_names or (), both.edge_kind.T, strict=True):
            expected = shares[of_kind, k].sum() / shares[:, k].sum()
            assert part["kinds"][name] == pytest.approx(float(expected))
    judged = result_of(fitted, directed, Split("half", train, NONE, others), seconds=0.0).measures
    information, ranking = agreement_with_kinds(shares.float(), both.edge_kind)
    assert judged["parts_by_kind"] == pytest.approx(information, abs=1e-6)
    assert judged["kind_ranking"] == pytest.approx(ranking, abs=1e-6)


def test_epochs_and_seconds_count_what_was_tried(tmp_path: Path) -> None:
    config = SMALL["node"].replace(partition="auto", epochs=7, pretrain_epochs=3, patience=0)
    fitted = run("node", config)
    metrics = write_run(tmp_path, toy("node"), fitted, parts("node"), {})
    assert list(fitted.tried) in (["learned", "even"], ["even", "learned"])
    assert metrics["epochs"] == 3 + 2 * 7
    assert list(metrics["partitions"]) == list(fitted.tried)


@pytest.mark.parametrize("samples", [0, 2])
def test_of_a_large_graph_an_excerpt_is_looked_at(
    samples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, graph = parts("node"), toy("node").graphs[0]
    config = SMALL["node"].replace(batch_size=20, num_samples=samples, epochs=2, pretrain_epochs=2)
    fitted = run("node", config, train_on=split["train"], validate_on=split["val"])
    assert isinstance(fitted.source, LargeGraph)
    monkeypatch.setattr("vepm.runs.LARGEST", graph.num_nodes)
    assert "excerpt_of" not in write_run(tmp_path, toy("node"), fitted, split, {})
    assert not (tmp_path / "predictions.safetensors").exists()
    monkeypatch.setattr("vepm.runs.LARGEST", 25)
    metrics = write_run(tmp_path, toy("node"), fitted, split, {})
    whole, excerpt = (
        load_file(tmp_path / f"{name}.safetensors") for name in ("predictions", "outputs")
    )
    found = probabilities(fitted.model, fitted.source, samples, fitted.card.seed)
    torch.testing.assert_close(whole["probabilities"], found)
    assert whole["prediction"].equal(found.argmax(1))
    right = accuracy(found[split["test"]], graph.y[split["test"]])
    assert metrics["test_accuracy"] == pytest.approx(right)
    assert metrics["excerpt_of"] == {"nodes": graph.num_nodes, "edges": graph.num_edges // 2}
    nodes = neighbourhood(fitted.source, int(split["train"][0]), 25)
    assert excerpt["y"].equal(graph.y[nodes])
    assert excerpt["train_mask"].equal(torch.isin(nodes, split["train"]))
    for name in ("memberships", "probabilities", "prediction"):
        assert excerpt[name].equal(whole[name][nodes]), name
    edges = graph.subgraph(nodes).num_edges
    assert excerpt["edge_index"].shape == (2, edges)
    assert excerpt["edge_weight"].size(0) == edges
    assert len(excerpt["embeddings"]) == len(excerpt["community_embeddings"]) == 25
