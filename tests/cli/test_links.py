"""``vepm links``: missing links, surprising edges, pairs of your choice, graphs that have grown."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from cli.running import names_in, read_json, read_rows, refused, succeed, vepm
from cli.writing import write_table
from vepm import LinkPredictor
from vepm.data import read

SHORT = ("--set", "pretrain_epochs=10", "-c", "4", "--device", "cpu")


def test_predictions_are_those_of_the_estimator(pets: Path, tmp_path: Path) -> None:
    Path("asked.txt").write_text("n0 n1\nn3 n2\n")
    out = succeed("links", pets, *SHORT, "--pairs", "asked.txt", "--top", "7").out
    folder = tmp_path / "runs" / "pets-links"
    assert "missing.csv and edges.csv in runs/pets-links" in out
    assert "checkpoint.safetensors" not in names_in(folder)
    model = LinkPredictor(num_communities=4, pretrain_epochs=10, device="cpu").fit(read(pets))
    expected = model.missing_links(top=7)
    rows = read_rows(folder / "missing.csv")
    assert [(row["source"], row["target"]) for row in rows] == expected.nodes
    found = np.array([float(row["probability"]) for row in rows])
    np.testing.assert_allclose(found, expected.probability, rtol=1e-4)
    assert [int(row["community_1"]) for row in rows] == expected.share.argmax(1).tolist()
    asked = [float(row["probability"]) for row in read_rows(folder / "pairs.csv")]
    np.testing.assert_allclose(asked, model.predict_proba([("n0", "n1"), ("n3", "n2")]), rtol=1e-4)
    surprise = [float(row["surprise"]) for row in read_rows(folder / "edges.csv")]
    assert surprise == sorted(surprise, reverse=True)
    assert len(surprise) == read(pets).graphs[0].num_edges / 2
    assert read_json(folder / "metrics.json")["auc"] == pytest.approx(model.scores_["auc"])


def test_a_saved_model_is_used_for_a_graph_that_has_grown(pets: Path, tmp_path: Path) -> None:
    printed = json.loads(succeed("links", pets, *SHORT, "-o", "one", "--json").out)
    assert printed == read_json(Path("one/metrics.json"))
    again = json.loads(succeed("links", pets, "--model", "one", "-o", "two", "--json").out)
    assert (again["auc"], again["epochs"]) == (printed["auc"], 0)
    assert Path("one/missing.csv").read_bytes() == Path("two/missing.csv").read_bytes()
    grown = tmp_path / "grown"
    shutil.copytree(pets, grown)
    nodes = (grown / "nodes.csv").read_text().splitlines()
    newcomer = ",".join(["newcomer", *nodes[1].split(",")[1:]])
    (grown / "nodes.csv").write_text("\n".join([*nodes, newcomer, ""]))
    with (grown / "edges.csv").open("a") as edges:
        edges.write("newcomer,n0\nnewcomer,n1\n")
    Path("asked.txt").write_text("newcomer n2\n")
    succeed("links", grown, "--model", "one", "-o", "three", "--pairs", "asked.txt")
    assert [row["source"] for row in read_rows(Path("three/pairs.csv"))] == ["newcomer"]


def test_an_interrupted_training_goes_on(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("vepm.cli.links.write_links", interrupt)
        outcome = vepm("links", pets, *SHORT, "-o", "run")
    assert outcome.code == 130
    assert "to continue from run, give the same command again" in outcome.err
    succeed("links", pets, *SHORT, "-o", "run")
    succeed("links", pets, *SHORT, "-o", "whole")
    assert Path("run/edges.csv").read_bytes() == Path("whole/edges.csv").read_bytes()


def test_bad_input_is_refused_before_training(pets: Path, shapes: Path, tmp_path: Path) -> None:
    Path("asked.txt").write_text("n0 n1\nn0 nobody\n")
    write_table(Path("few.csv"), "source,target", [("a", "b"), ("b", "c")])
    Path("empty").mkdir()
    before = names_in(tmp_path)
    for words, message in (
        ((pets, "--pairs", "asked.txt"), "asked.txt, line 2: the graph has no node 'nobody'"),
        ((pets, "--model", "empty"), "links.toml"),
        ((pets, "--model", "one", "-c", "3"), "--model trains nothing"),
        (("few.csv",), "2 edges are too few"),
        ((shapes,), "holds many graphs"),
    ):
        assert message in refused("links", *words)
    assert names_in(tmp_path) == before
