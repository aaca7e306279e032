"""``vepm train``: what it writes and prints, and what it is given when nothing is said."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.running import QUICK, names_in, read_json, read_rows, same_tensors, succeed, vepm
from cli.writing import NODES
from vepm.cli.folders import MARKER, RUN
from vepm.cli.jobs import settings
from vepm.cli.options import Given
from vepm.data import Dataset, load
from vepm.report import write_report
from vepm.training import preset

FILES = {
    "config.toml",
    "model.safetensors",
    "metrics.json",
    "history.csv",
    "outputs.safetensors",
    "names.json",
    "report.html",
    "figures",
}


def check_whole_run(folder: Path, task: str) -> dict[str, Any]:
    assert names_in(folder) == FILES
    files = {path for path in folder.rglob("*") if path.is_file() and path.name != MARKER}
    assert set(RUN.found(folder)) == files
    figures = names_in(folder / "figures")
    assert {"learning_curves.svg", "adjacency.svg", "tsne_memberships.svg"} <= figures
    metrics: dict[str, Any] = read_json(folder / "metrics.json")
    assert (metrics["task"], metrics["seed"]) == (task, 0)
    assert 0 <= metrics["test_accuracy"] <= 1
    assert metrics["seconds"] > 0
    assert metrics["peak_memory_mib"] > 50
    config = tomllib.loads((folder / "config.toml").read_text())
    assert config["training"]["epochs"] == 5
    phases = [row["phase"] for row in read_rows(folder / "history.csv")]
    assert phases == ["pretrain"] * 5 + ["finetune"] * 5
    return metrics


def test_own_graphs_leave_a_whole_run_folder(shapes: Path, tmp_path: Path) -> None:
    outcome = succeed("train", shapes, *QUICK)
    folder = tmp_path / "runs" / "shapes-0"
    metrics = check_whole_run(folder, "graph")
    assert metrics["dataset"] == "shapes"
    assert 0 <= metrics["val_accuracy"] <= 1
    assert "test labels were not used" in metrics["rule"]
    assert metrics["rule"] in outcome.out


def test_own_nodes_leave_a_whole_run_folder(pets_run: Path) -> None:
    assert names_in(pets_run) == FILES - {"report.html", "figures"}
    metrics = read_json(pets_run / "metrics.json")
    assert (metrics["dataset"], metrics["task"], metrics["seed"]) == ("pets", "node", 0)
    assert 0 <= metrics["val_accuracy"] <= 1
    assert 0 <= metrics["test_accuracy"] <= 1


def test_parts_are_counted_and_disjoint(pets_run: Path) -> None:
    metrics = read_json(pets_run / "metrics.json")
    counts = [metrics[f"num_{role}"] for role in ("train", "val", "test")]
    assert min(counts) > 0
    assert sum(counts) == NODES


def test_bundled_nodes_leave_a_whole_run_folder(tmp_path: Path) -> None:
    outcome = succeed("train", "KarateClub", "-o", "run", "--baselines", "gcn, gcn", *QUICK)
    metrics = check_whole_run(tmp_path / "run", "node")
    assert metrics["dataset"] == "KarateClub"
    assert metrics["val_accuracy"] is None
    assert "last epoch" in metrics["rule"]
    assert set(metrics["baselines"]) == {"gcn"}
    accuracy = metrics["baselines"]["gcn"]["test_accuracy"]
    for text in (
        "run/report.html",
        "last epoch",
        "MiB",
        "one run, seed 0",
        f"{100 * accuracy:.1f}",
    ):
        assert text in outcome.out
    assert outcome.err.splitlines() == [f"warning: {line}" for line in metrics["warnings"]]
    assert "without labels to validate on" in outcome.err
    assert metrics["command"].startswith("vepm train KarateClub -o run --baselines 'gcn, gcn' ")


@pytest.mark.usefixtures("no_page")
def test_json_is_the_metrics_and_nothing_else(pets: Path, tmp_path: Path) -> None:
    outcome = succeed("train", pets, "--seed", "3", "--json", *QUICK)
    folder = tmp_path / "runs" / "pets-3"
    assert json.loads(outcome.out) == read_json(folder / "metrics.json")


@pytest.mark.usefixtures("no_page")
def test_same_seed_same_numbers_whatever_the_folder(pets: Path, pets_run: Path) -> None:
    succeed("train", pets, "-o", "again", *QUICK)
    succeed("train", pets, "-o", "other", "--seed", "1", *QUICK)
    model = pets_run / "model.safetensors"
    assert same_tensors(model, Path("again/model.safetensors"))
    assert not same_tensors(model, Path("other/model.safetensors"))


class SeenError(Exception):
    pass


def given_to_fit(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> tuple[Dataset, Any]:
    """The dataset and settings that a command would train on."""
    seen: list[Any] = []

    def fit(*args: Any, **_: Any) -> None:
        seen.extend(args)
        raise SeenError

    monkeypatch.setattr("vepm.training.fit_many", fit)
    with pytest.raises(SeenError):
        vepm(*words)
    dataset, config, *_ = seen
    return dataset, config


def test_no_arguments_mean_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dataset, config = given_to_fit(monkeypatch, "train")
    assert (dataset.name, dataset.task) == ("digits", "node")
    assert config.training.epochs > 100
    assert names_in(tmp_path) == set()


def test_settings_come_from_preset_then_file_then_options(
    monkeypatch: pytest.MonkeyPatch, pets: Path
) -> None:
    file = Path("settings.toml")
    file.write_text("[training]\nepochs = 7\npatience = 3\n[model]\nnum_communities = 12\n")
    words = ("train", pets, "--preset", "released", "--config", file)
    _, config = given_to_fit(
        monkeypatch, *words, "--set", "epochs=9", "--set", "scheme=joint", "--set", "dropout=0.25"
    )
    assert (config.training.epochs, config.training.patience) == (9, 3)
    assert (config.training.scheme, config.model.dropout) == ("joint", 0.25)
    assert config.model.num_communities == 12
    assert config.training.sampling is False


def test_a_name_is_the_dataset_and_a_path_the_folder(
    monkeypatch: pytest.MonkeyPatch, pets: Path
) -> None:
    Path("KarateClub").symlink_to(pets)
    assert given_to_fit(monkeypatch, "train", "KarateClub")[0].num_classes == 4
    assert given_to_fit(monkeypatch, "train", "./KarateClub")[0].num_classes == 2


@pytest.mark.usefixtures("no_page")
def test_overwriting_replaces_the_run_and_keeps_what_is_not_its_own(pets: Path) -> None:
    succeed("train", pets, "-o", "run", *QUICK)
    write_report(Path("run"))
    mine = [Path("run/notes.txt"), Path("run/figures/mine.svg"), Path("run/mine/x")]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    succeed("train", pets, "-o", "run", "--overwrite", "--seed", "5", *QUICK)
    assert read_json(Path("run/metrics.json"))["seed"] == 5
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert names_in(Path("run/figures")) == {"mine.svg"}
    assert not Path("run/report.html").exists()


@pytest.mark.usefixtures("no_page")
def test_too_few_labels_to_test_on_still_train(pets: Path) -> None:
    folder = Path("few")
    folder.mkdir()
    (folder / "edges.csv").write_bytes((pets / "edges.csv").read_bytes())
    lines = (pets / "nodes.csv").read_text().splitlines()
    blank = [f"{line.split(',')[0]},,{','.join(line.split(',')[2:])}" for line in lines[7:]]
    (folder / "nodes.csv").write_text("\n".join(lines[:7] + blank))
    succeed("train", folder, "-o", "run", *QUICK)
    assert read_json(Path("run/metrics.json"))["test_accuracy"] is None


@pytest.mark.usefixtures("no_page")
def test_unlabelled_graphs_in_a_split_are_left_out(shapes: Path) -> None:
    folder = Path("some")
    folder.mkdir()
    for name in ("nodes.csv", "edges.csv"):
        (folder / name).write_bytes((shapes / name).read_bytes())
    header, *rows = (shapes / "graphs.csv").read_text().splitlines()
    parts = ["train", "train", "val", "test"]
    lines = [f"{row},{parts[i // 2 % 4]}" for i, row in enumerate(rows)]
    lines[0], lines[4] = "g0,,train", "g4,,val"
    (folder / "graphs.csv").write_text("\n".join([f"{header},split", *lines]))
    succeed("train", folder, "-o", "run", *QUICK)
    metrics = read_json(Path("run/metrics.json"))
    assert [metrics[f"num_{role}"] for role in ("train", "val", "test")] == [11, 5, 6]
    assert 0 <= metrics["test_accuracy"] <= 1


def test_datasets_that_were_searched_have_settings_of_their_own() -> None:
    known = replace(load("KarateClub"), name="Cora")
    found = settings(known, Given(preset="tuned", settings=["epochs=3"]))
    assert found == preset("tuned", "node", "Cora").replace(epochs=3)
    assert settings(known, Given(preset="paper")) == preset("paper", "node")
