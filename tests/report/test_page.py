from pathlib import Path

import numpy as np
import pytest

from vepm.report import read_run, write_report

from .conftest import HOSTILE
from .reading import Page
from .writing import write_node_run

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
    data = Page(run_folder / "report.html").data
    np.testing.assert_allclose(data["nodes"]["z"], run.memberships, rtol=6e-3)
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
    assert "GCN" in text
    assert "vepm train planted --seed 0" in text


def test_unsupervised_page_claims_no_accuracy(unsupervised_run: Path) -> None:
    text = Page(unsupervised_run / "report.html").text
    assert "Test accuracy" not in text
    assert "Community 3" in text


def test_same_run_same_page(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first


def test_large_graph_is_excerpted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.report.excerpt.MOST_MEMBERSHIPS", 0)
    folder = write_node_run(tmp_path / "run", nodes=320)
    page = Page(write_report(folder))
    assert len(page.data["nodes"]["name"]) == 200
    assert page.data["totalNodes"] == 320
    assert "carries 200 of the run's 320 nodes" in " ".join(page.text.split())


def test_dense_graph_is_excerpted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.report.excerpt.MOST_EDGES", 2000)
    folder = write_node_run(tmp_path / "run", nodes=320)
    page = Page(write_report(folder))
    assert 200 <= len(page.data["nodes"]["name"]) < 320
    assert len(page.data["edges"]["source"]) < read_run(folder).edge_index.shape[1] // 2


def test_page_stays_small(node_run: Path) -> None:
    assert (node_run / "report.html").stat().st_size < 2_000_000
