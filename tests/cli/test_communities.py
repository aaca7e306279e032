"""``vepm communities``: memberships and edges split, with labels or without."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from cli.running import names_in, read_json, read_rows, refused, succeed
from cli.writing import NODES, write_nodes, write_table
from vepm.baselines import communities
from vepm.data import read
from vepm.evaluation.communities import overlapping_nmi
from vepm.training import Config, preset

SHORT = ("--set", "pretrain_epochs=10", "--device", "cpu")


def columns(rows: list[dict[str, str]], prefix: str) -> np.ndarray:
    names = [name for name in rows[0] if name.startswith(prefix)]
    return np.array([[float(row[name]) for name in names] for row in rows])


def test_a_folder_without_labels(tmp_path: Path) -> None:
    """The one test with a page here: it must be drawn without labels too."""
    data = write_nodes(tmp_path / "plain", labels=False)
    outcome = succeed("communities", data, "-c", "3", *SHORT)
    folder = tmp_path / "runs" / "plain-communities"
    assert {"report.html", "figures", "metrics.json", "memberships.csv"} <= names_in(folder)
    assert "checkpoint.safetensors" not in names_in(folder)
    assert "memberships.csv and edges.csv in runs/plain-communities" in outcome.out
    nodes, edges = read_rows(folder / "memberships.csv"), read_rows(folder / "edges.csv")
    assert [row["id"] for row in nodes] == [f"n{i}" for i in range(NODES)]
    strengths = columns(nodes, "strength_")
    assert strengths.shape == (NODES, 3)
    np.testing.assert_allclose(strengths.sum(1), 1, atol=3e-6)
    assert [int(row["community"]) for row in nodes] == strengths.argmax(1).tolist()
    assert set(columns(nodes, "member_").flatten()) <= {0.0, 1.0}
    given = {frozenset(row.values()) for row in read_rows(data / "edges.csv")}
    assert {frozenset((row["source"], row["target"])) for row in edges} == given
    assert len(edges) == len(given)
    np.testing.assert_allclose(columns(edges, "share_").sum(1), 1, atol=3e-6)


@pytest.mark.usefixtures("no_page")
def test_edges_alone_are_enough() -> None:
    write_table(
        Path("links.csv"), "source,target", [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]
    )
    succeed("communities", "links.csv", "-c", "4", "-k", "2", "-o", "found", *SHORT)
    rows = read_rows(Path("found/memberships.csv"))
    assert [row["id"] for row in rows] == ["a", "b", "c", "d"]
    assert columns(rows, "strength_").shape == (4, 2)


@pytest.mark.usefixtures("no_page")
def test_scripts_get_json_and_people_the_cost(pets: Path) -> None:
    printed = json.loads(succeed("communities", pets, "-o", "one", "--json", *SHORT).out)
    assert printed == read_json(Path("one/metrics.json"))
    cost = succeed("communities", pets, "-o", "two", *SHORT).out.splitlines()[1]
    assert re.fullmatch(r"cost: [\d.]+ s in 10 epochs, at most [\d,]+ MiB of memory", cost)


@pytest.mark.usefixtures("no_page")
def test_labels_are_not_looked_at(pets: Path, tmp_path: Path) -> None:
    succeed("communities", pets, "-c", "2", "-o", "with", *SHORT)
    plain = write_nodes(tmp_path / "plain", labels=False)
    succeed("communities", plain, "-c", "2", "-o", "without", *SHORT)
    for name in ("memberships.csv", "edges.csv"):
        assert Path("with", name).read_bytes() == Path("without", name).read_bytes()
    assert 0 <= read_json(Path("with/metrics.json"))["nmi"] <= 1
    assert "nmi" not in read_json(Path("without/metrics.json"))


@pytest.mark.usefixtures("no_page")
def test_a_model_of_communities_classifies_nothing(pets: Path) -> None:
    succeed("communities", pets, "-c", "2", "-o", "found", *SHORT)
    assert "trained without labels" in refused("predict", "found", pets)
    assert read(pets).num_classes == 2


@pytest.mark.usefixtures("no_page")
def test_a_finished_run_is_replaced_only_when_asked(pets: Path) -> None:
    words = ("communities", pets, "-c", "2", "-o", "found", *SHORT)
    succeed(*words)
    before = Path("found/memberships.csv").read_bytes()
    assert "--overwrite" in refused(*words, "--seed", "1")
    assert Path("found/memberships.csv").read_bytes() == before
    succeed(*words, "--seed", "1", "--overwrite")
    assert Path("found/memberships.csv").read_bytes() != before


def test_many_graphs_are_refused(shapes: Path, tmp_path: Path) -> None:
    assert "many graphs" in refused("communities", shapes, "-o", "found")
    assert names_in(tmp_path) == set()


@pytest.mark.usefixtures("no_page")
def test_known_communities_and_baselines_beside_ours(pets: Path) -> None:
    halves = [[f"n{i}" for i in range(NODES) if i % 2 == k] for k in range(2)]
    Path("circles.txt").write_text("\n".join(" ".join(half) for half in halves))
    write_table(
        Path("circles.csv"), "community,id", [(k, n) for k, half in enumerate(halves) for n in half]
    )
    peers = ("--baselines", "louvain,label-propagation,bigclam,nocd", "-c", "2", *SHORT)
    found = {}
    for name in ("circles.txt", "circles.csv"):
        words = ("communities", pets, "--truth", name, "-o", name[-3:], "--json", *peers)
        found[name] = json.loads(succeed(*words).out)["communities"]
    assert found["circles.txt"] == found["circles.csv"]
    assert list(found["circles.txt"]) == ["vepm", "louvain", "label-propagation", "bigclam", "nocd"]
    ours = found["circles.txt"]["vepm"]
    member = columns(read_rows(Path("txt/memberships.csv")), "member_")
    truth = np.array([[i % 2 == k for k in range(2)] for i in range(NODES)])
    assert ours["overlapping_nmi"] == pytest.approx(overlapping_nmi(member, truth))
    assert ours["communities"] == member.any(0).sum()
    assert member[np.arange(NODES), columns_of_main(Path("txt"))].all()
    shown = succeed("communities", pets, "-o", "shown", *SHORT).out
    # The labels of the data are what there is to compare with otherwise.
    assert re.search(r"^vepm: modularity -?0\.\d\d, overlapping NMI 0\.\d\d, omega", shown, re.M)
    assert "louvain" not in shown


def columns_of_main(folder: Path) -> list[int]:
    return [int(row["community"]) for row in read_rows(folder / "memberships.csv")]


def test_bad_truth_and_baselines_are_refused_before_training(pets: Path, tmp_path: Path) -> None:
    Path("truth.txt").write_text("n0 n1\n\nnobody\n")
    Path("empty.txt").write_text("\n")
    before = names_in(tmp_path)
    for words, message in (
        (("--truth", "truth.txt"), "truth.txt, line 3: the graph has no node 'nobody'"),
        (("--truth", "empty.txt"), "empty.txt: names no node"),
        (("--truth", "nowhere.txt"), "nowhere.txt: no such file"),
        (("-c", "many"), "num_communities must be of type int, got 'many'"),
        (("-c", "0"), "num_communities must be between 1 and"),
        (("--baselines", "metis"), "no baseline 'metis'; there are louvain, leiden"),
    ):
        assert message in refused("communities", pets, *words)
    assert names_in(tmp_path) == before


def test_nocd_is_refused_before_training_where_it_would_not_fit(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(communities, "available_bytes", lambda device: 1000)
    before = names_in(tmp_path)
    said = refused("communities", pets, "--baselines", "louvain,nocd")
    assert re.search("baseline 'nocd' needs about .* leave it out", said)
    assert names_in(tmp_path) == before


@pytest.mark.usefixtures("no_page")
def test_the_number_of_communities_can_be_left_to_the_model(pets: Path) -> None:
    succeed("communities", pets, "-c", "auto", "-o", "found", *SHORT)
    config = Config.from_toml(Path("found/config.toml").read_text())
    count = config.model.num_communities
    assert count != preset("communities", "node").model.num_communities
    assert config.training.shrinkage == 0
    assert columns(read_rows(Path("found/memberships.csv")), "member_").shape == (NODES, count)
