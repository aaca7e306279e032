import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vepm.errors import InputError
from vepm.report import read_run, summary, write_report

from .conftest import HOSTILE
from .reading import Page
from .writing import change, rewrite_metrics, write_node_run, write_unsupervised_run

RUNS = ["node_run", "graph_run", "unsupervised_run"]


@pytest.fixture(params=RUNS)
def run_folder(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


def test_page_is_whole_and_its_elements_nest(run_folder: Path) -> None:
    page = Page(run_folder / "report.html")
    assert page.open == []
    assert len(page.scripts) == 2
    identifiers = page.attributes("id")
    assert len(identifiers) == len(set(identifiers))


def test_page_asks_nothing_of_the_network(run_folder: Path) -> None:
    page = Page(run_folder / "report.html")
    for tag, attributes in page.elements:
        for name in ("src", "href", "xlink:href"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:")), (tag, value)
    assert any("default-src 'none'" in content for content in page.attributes("content"))


def test_embedded_data_equals_the_run(run_folder: Path) -> None:
    run = read_run(run_folder)
    page = Page(run_folder / "report.html")
    data = page.data
    np.testing.assert_allclose(page.memberships, run.memberships, rtol=6e-3)
    assert data["nodes"]["name"] == list(run.node_names)
    share = {
        (s, t): shares
        for s, t, shares in zip(*run.edge_index.tolist(), run.edge_weight, strict=True)
    }
    edges = data["edges"]
    assert len(edges["source"]) == run.edge_index.shape[1] // 2
    for s, t, embedded in zip(edges["source"], edges["target"], edges["share"], strict=True):
        np.testing.assert_allclose(embedded, 100 * share[s, t], atol=0.51)
    if run.prediction is not None:
        assert data["items"]["prediction"] == run.prediction.tolist()


def test_names_from_data_are_harmless(node_run: Path) -> None:
    raw = (node_run / "report.html").read_text(encoding="utf-8")
    assert "window.hacked" in raw
    assert HOSTILE not in raw
    page = Page(node_run / "report.html")
    assert page.data["nodes"]["name"][3] == HOSTILE
    assert page.data["classes"] == ["red", "$x_{<b>", "_blue"]


def test_headline_names_split_rule_and_baselines(node_run: Path) -> None:
    run = read_run(node_run)
    text = " ".join(Page(node_run / "report.html").text.split())
    assert f"{100 * run.metrics['test_accuracy']:.1f}" in text
    assert "test nodes" in text
    assert "epoch of the best validation accuracy" in text
    assert "gcn" in text.lower()
    assert "vepm train planted --seed 0" in text


def test_page_opens_with_a_conclusion(node_run: Path, unsupervised_run: Path) -> None:
    run = read_run(node_run)
    assert run.probabilities is not None
    text = " ".join(Page(node_run / "report.html").text.split())
    points = 100 * (run.metrics["test_accuracy"] - 0.8)
    assert (
        f"{100 * run.metrics['test_accuracy']:.1f} % of the test nodes are classified correctly"
        in text
    )
    assert f"{abs(points):.1f} points {'above' if points >= 0 else 'below'} GCN." in text
    unsure = int((run.probabilities.max(axis=1) < 0.6).sum())
    assert f"{unsure} nodes are uncertain (under 60 %)" in text
    text = " ".join(Page(unsupervised_run / "report.html").text.split())
    assert "The 70 nodes fall into 3 communities;" in text


def test_communities_are_counted_with_nodes_of_several_and_of_none(tmp_path: Path) -> None:
    folder = write_unsupervised_run(tmp_path / "run")
    members = np.eye(6, dtype=np.float32)[2 * (np.arange(70) % 2)]
    change(folder, memberships=members)
    said = "The 70 nodes fall into 2 of 3 communities; 0 nodes are members of several."
    assert summary.conclusion(read_run(folder)) == [said]
    members[4], members[5] = 0, members[0] + members[1]
    change(folder, memberships=members)
    said = "The 70 nodes fall into 2 of 3 communities; 1 node is a member of several, 1 of none."
    assert summary.conclusion(read_run(folder)) == [said]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("", "all edges are split almost alike, so an even split should do as well"),
        ('partition = "even"\n', "all edges are split evenly, as the settings ask"),
    ],
)
def test_a_split_that_tells_no_edges_apart_is_called_so(
    tmp_path: Path, setting: str, said: str
) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    with (folder / "config.toml").open("a") as file:
        file.write(setting)
    rewrite_metrics(folder, parts=[{"relevance": w, "share": 1 / 3} for w in (4.0, 1.0, 0.5)])
    assert summary.even_split(read_run(folder)) == ""
    edges = read_run(folder).edge_index.shape[1]
    shares = np.tile(np.array([0.4, 0.3, 0.3], np.float32), (edges, 1))
    # Of two edges one has 0.15 more of a part: a total variation of 0.075 from the mean.
    shares[::2] += np.array([0.15, -0.15, 0], np.float32)
    change(folder, edge_weight=shares)
    text = " ".join(Page(write_report(folder)).text.split())
    assert f"{said[0].upper()}{said[1:]}; " in text
    assert f"{said[0].upper()}{said[1:]}, whatever the weights." in text
    assert "times as much" not in text
    shares[::2] += np.array([0.07, -0.07, 0], np.float32)
    change(folder, edge_weight=shares)
    assert summary.even_split(read_run(folder)) == ""


def test_an_even_split_that_was_chosen_is_shown_beside_the_learned_one(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    (folder / "config.toml").write_text('[model]\npartition = "even"\n')
    edges = read_run(folder).edge_index.shape[1]
    change(folder, edge_weight=np.full((edges, 3), 1 / 3, np.float32))
    rewrite_metrics(folder, partitions={"even": 0.625, "learned": 0.5})
    said = "at least as well on validation labels (62.5 %) as a learned split (50.0 %)"
    text = " ".join(Page(write_report(folder)).text.split())
    assert f"All edges are split evenly, which did {said}; " in text
    rewrite_metrics(folder, partitions={"learned": 0.5})
    assert "evenly, as the settings ask" in " ".join(Page(write_report(folder)).text.split())


def test_evidence_names_the_communities_that_carry_it(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    run = read_run(folder)
    assert run.log_odds is not None
    fall = np.tile([0.1, 5.0, 0.1], (40, 1))
    change(folder, log_odds_without=(run.log_odds[:, None] - fall).astype(np.float32))
    text = " ".join(Page(write_report(folder)).text.split())
    assert "Community 1 carries most of the evidence" in text


def test_parts_are_shown_with_weight_share_labels_and_kinds(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    parts = [
        {"relevance": w, "share": 0.3, "homophily": 0.75, "kinds": {"author": 0.9, "subject": 0.1}}
        for w in (4.0, 1.0, 0.5)
    ]
    rewrite_metrics(folder, parts=parts)
    text = " ".join(Page(write_report(folder)).text.split())
    assert "An edge of Community 0 counts 8.0 times as much as an edge of Community 2" in text
    assert "author 90" in text
    assert "75.0" in text
    rewrite_metrics(folder, parts=[part | {"relevance": 1.0} for part in parts])
    text = " ".join(Page(write_report(folder)).text.split())
    assert "All communities have about the same weight" in text
    rewrite_metrics(folder, partitions={"sage": 0.625, "learned": 0.5, "even": 0.0, "other": 1})
    text = " ".join(Page(write_report(folder)).text.split())
    kept = "62.5 % with an even split that keeps nodes apart from their neighbours"
    others = "50.0 % with a learned split and 0.0 % with an even split"
    tried = f"Validation accuracy was {kept}, beside {others}."
    assert f"{tried} All communities have about the same weight" in text
    rewrite_metrics(folder, parts=[{"share": 0.3}] * 3)
    assert "How much each community counts" not in Page(write_report(folder)).text
    rewrite_metrics(folder, parts=["no", "such", "parts"])
    with pytest.raises(InputError, match=r"parts is .*; train again"):
        write_report(folder)


def test_classes_of_a_benchmark_have_their_names(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    numbers = {"dataset": "PubMed", "class_names": ["0", "1", "2"]}
    rewrite_metrics(folder, **numbers, source="Planetoid, public split, data/PubMed/raw")
    names = ("Experimental diabetes", "Type 2 diabetes", "Type 1 diabetes")
    assert read_run(folder).class_names == names
    rewrite_metrics(folder, source="own files")
    assert read_run(folder).class_names == ("0", "1", "2")


def test_baselines_go_by_their_names_on_the_command_line(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    rewrite_metrics(
        folder, baselines={"gcn": {"test_accuracy": 0.99}, "my-own": {"test_accuracy": 0.5}}
    )
    text = " ".join(Page(write_report(folder)).text.split())
    assert "below gcn, the best baseline" in text
    assert "my-own" in text


def test_nodes_in_no_community_are_counted(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    communities = read_run(folder).memberships.shape[1]
    memberships = np.eye(communities, dtype=np.float32)[np.arange(40) % communities]
    for alone, words in ((), ""), ((7,), "1 node is a member"), ((7, 8), "2 nodes are members"):
        memberships[list(alone)] = 0
        change(folder, memberships=memberships)
        text = write_report(folder).read_text(encoding="utf-8")
        assert words in text
        assert ("of none" in text) == bool(alone)


def test_communities_to_which_all_nodes_belong_are_called_so(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    words = "all nodes are members of all communities"
    assert words not in write_report(folder).read_text(encoding="utf-8")
    change(folder, memberships=np.ones_like(read_run(folder).memberships))
    assert words in write_report(folder).read_text(encoding="utf-8")


def test_features_that_only_number_the_nodes_are_left_out(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    assert "feature 3" in Page(write_report(folder)).text
    change(folder, features=np.eye(40, dtype=np.float32))
    assert "feature 3" not in Page(write_report(folder)).text


def test_pixels_become_pictures(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    names = [f"pixel_{row}_{column}" for row in range(2) for column in range(5)]
    (folder / "names.json").write_text(json.dumps({"feature_names": names}))
    page = Page(write_report(folder))
    features = read_run(folder).features
    assert features is not None
    assert page.data["nodes"]["grid"] == [2, 5]
    assert page.data["nodes"]["image"][3] == "".join("f" if v else "0" for v in features[3])
    assert len(page.attributes("data-image")) == 3


def test_labels_of_most_nodes_name_a_community(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=60)
    main = read_run(folder).interaction.argmax(axis=1)
    labels = np.full(60, 2)
    for k in (1, 2):
        labels[main == k] = np.arange((main == k).sum()) % 2
    change(folder, y=labels)
    nicknames = Page(write_report(folder)).data["nicknames"]
    assert nicknames == ["mostly blue", "mostly red and green", "mostly red and green"]


def test_named_features_name_a_community(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    change(folder, y=None)
    names = [f"word{number}" for number in range(10)]
    (folder / "names.json").write_text(json.dumps({"feature_names": names}))
    assert re.search(r"Community 0 word\d, word\d", Page(write_report(folder)).text)


def test_unsupervised_page_claims_no_accuracy(unsupervised_run: Path) -> None:
    text = Page(unsupervised_run / "report.html").text
    assert "Test accuracy" not in text
    assert "Community 2" in text
    assert "Community 3" not in text


def test_same_run_same_page(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first


def test_large_graph_is_excerpted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.report.payload.MOST_MEMBERSHIPS", 0)
    folder = write_node_run(tmp_path / "run", nodes=320)
    page = Page(write_report(folder))
    assert len(page.data["nodes"]["name"]) == 200
    assert page.data["totalNodes"] == 320
    assert "shows 200 of 320 nodes" in " ".join(page.text.split())


def test_dense_graph_is_excerpted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.report.payload.MOST_EDGES", 2000)
    folder = write_node_run(tmp_path / "run", nodes=320)
    page = Page(write_report(folder))
    assert 200 <= len(page.data["nodes"]["name"]) < 320
    assert len(page.data["edges"]["source"]) < read_run(folder).edge_index.shape[1] // 2


def test_page_stays_small(node_run: Path) -> None:
    assert (node_run / "report.html").stat().st_size < 2_000_000


def test_interval_is_wilsons(node_run: Path) -> None:
    run = read_run(node_run)
    assert run.labels is not None
    count = int((run.masks["test"] & (run.labels >= 0)).sum())
    perfect = replace(run, metrics={**run.metrics, "test_accuracy": 1.0})
    found = summary.headline(perfect)["interval"]
    assert found == pytest.approx((count / (count + 1.959964**2), 1.0), abs=1e-6)
