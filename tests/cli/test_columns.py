"""Columns of own data, chosen on the command line and encoded at prediction as in training."""

import json
from pathlib import Path

import pytest

from cli.running import QUICK, read_rows, refused, succeed
from cli.writing import write_nodes, write_table
from vepm.training import load_model


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Nodes with a group, a city that leans to it, an age and a phone number."""
    folder = write_nodes(tmp_path / "people", labels=False)
    rows = [
        [
            f"n{i}",
            ("cat", "dog")[i % 2],
            ("Rome", "Oslo")[(i % 2 + (i % 7 == 0)) % 2],
            20 + i,
            7 * i,
        ]
        for i in range(24)
    ]
    write_table(folder / "nodes.csv", "id,group,city,age,phone", rows)
    return folder


@pytest.mark.usefixtures("no_page")
def test_columns_are_chosen_and_kept_by_the_model(people: Path, tmp_path: Path) -> None:
    assert "name their column with --label" in refused("train", people, "--drop", "phone,age")
    run = tmp_path / "run"
    succeed("train", people, "-o", run, "--label", "group", "--drop", "phone,age", *QUICK)
    names = json.loads((run / "names.json").read_text())["feature_names"]
    assert names == ["city=Oslo", "city=Rome"]
    output = tmp_path / "found.csv"
    columns = ("--label", "group", "--features", "city")
    succeed("predict", run, people, "-o", output, *columns)
    whole = read_rows(output)
    # In a part of the graph that knows one city alone, its column means what it meant.
    table = [line for line in (people / "nodes.csv").read_text().split() if "Oslo" not in line]
    (people / "nodes.csv").write_text("\n".join(table))
    kept = {line.split(",")[0] for line in table}
    edges = [line.split(",") for line in (people / "edges.csv").read_text().split()[1:]]
    write_table(people / "edges.csv", "source,target", [e for e in edges if set(e) <= kept])
    succeed("predict", run, people, "-o", output, *columns)
    assert len(read_rows(output)) == len(table) - 1 < len(whole)
    (people / "nodes.csv").write_text("\n".join(table).replace("Rome", "Bern"))
    assert "'city=Bern' unknown to the model" in refused("predict", run, people, *columns)


def test_columns_are_for_own_data(people: Path) -> None:
    for command in ("train", "evaluate", "communities", "links", "tune"):
        assert "data of your own" in refused(command, "KarateClub", "--label", "x")
        assert "no column 'x'" in refused(command, people, "--drop", "x")


@pytest.mark.usefixtures("no_page")
def test_directions_and_weights_of_own_edges(tmp_path: Path) -> None:
    folder = write_nodes(tmp_path / "people")
    lines = (folder / "edges.csv").read_text().split()[1:]
    write_table(folder / "edges.csv", "source,target,weight", [[*e.split(","), 3] for e in lines])
    run, output = tmp_path / "run", tmp_path / "found.csv"
    succeed("train", folder, "-o", run, "--directed", *QUICK)
    _, card = load_model(run / "model.safetensors")
    assert card.directed
    for options in (("--directed",), ("--directed", "--no-weights")):
        said = succeed("predict", run, folder, "-o", output, *options).err
        assert len(read_rows(output)) == 24
        assert ("trained on weighted edges" in said) == ("--no-weights" in options)
    assert "--directed" in refused("predict", run, folder, "-o", output)
    assert "data of your own" in refused("train", "KarateClub", "--directed")


@pytest.mark.usefixtures("no_page")
def test_a_model_trained_without_weights_refuses_them(tmp_path: Path) -> None:
    folder = write_nodes(tmp_path / "people")
    run, output = tmp_path / "run", tmp_path / "found.csv"
    succeed("train", folder, "-o", run, *QUICK)
    lines = (folder / "edges.csv").read_text().split()[1:]
    write_table(folder / "edges.csv", "source,target,weight", [[*e.split(","), 3] for e in lines])
    said = refused("predict", run, folder, "-o", output)
    assert "its edges have weights, and the model was trained without" in said
    succeed("predict", run, folder, "-o", output, "--no-weights")
    assert len(read_rows(output)) == 24


@pytest.mark.usefixtures("no_page")
def test_baselines_that_do_not_use_weights_are_named_once(tmp_path: Path) -> None:
    folder = write_nodes(tmp_path / "people")
    sentence = "not used by gcn: the weights of edges"
    words = ("evaluate", folder, "--method", "gcn", "--seeds", "2", "--device", "cpu")
    assert sentence not in succeed(*words).err
    lines = (folder / "edges.csv").read_text().split()[1:]
    write_table(folder / "edges.csv", "source,target,weight", [[*e.split(","), 3] for e in lines])
    assert succeed(*words).err.count(sentence) == 1
    assert sentence not in succeed(*words, "--no-weights").err
    run = ("-o", tmp_path / "run", "--baselines", "gcn", *QUICK)
    assert succeed("train", folder, *run).err.count(sentence) == 1
    run = ("-o", tmp_path / "found", "--baselines", "louvain", *QUICK)
    assert "not used by louvain: the weights" in succeed("communities", folder, *run).err
