"""The page in a real browser."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vepm.report import read_run, write_comparison, write_report

from .browsing import DRAWN_EDGES, Browser, Keys, Select, click_a_node, needs_browser, opened
from .writing import change, rewrite_metrics, write_node_run

pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from opened()


@pytest.mark.parametrize("fixture", ["node_run", "graph_run", "unsupervised_run"])
def test_opens_quietly_and_offline(
    browser: Browser, fixture: str, request: pytest.FixtureRequest
) -> None:
    browser.open(request.getfixturevalue(fixture))
    assert browser.run("return vepmReport.cy.nodes().length") > 0
    time.sleep(0.3)
    assert browser.driver.get_log("browser") == []
    outside = [url for url in browser.requests() if not url.startswith(("file:", "data:", "blob:"))]
    assert outside == []
    assert browser.run("return window.hacked") is None


def test_picked_node_shows_its_true_memberships(browser: Browser, node_run: Path) -> None:
    run = read_run(node_run)
    browser.open(node_run)
    node = click_a_node(browser)
    title = browser.driver.find_element("id", "panel-title")
    assert title.text == run.node_names[node]
    shown = browser.panel_memberships()
    assert len(shown) == run.memberships.shape[1]
    for affiliation, value in shown.items():
        assert value == pytest.approx(run.memberships[node, affiliation], rel=6e-3)
    assert run.prediction is not None
    panel = browser.driver.find_element("id", "panel").text
    assert run.class_names[run.prediction[node]] in panel
    assert "Evidence for" in panel


def test_support_is_what_the_label_loses_without_a_community(
    browser: Browser, node_run: Path
) -> None:
    run = read_run(node_run)
    assert run.log_odds is not None
    assert run.log_odds_without is not None
    browser.open(node_run)
    browser.run("vepmReport.pickNode(7)")
    shown = {
        int(row.get_attribute("data-support")): float(row.get_attribute("data-value"))
        for row in browser.all("#panel [data-support]")
    }
    true = run.log_odds[7] - run.log_odds_without[7]
    assert [shown[k] for k in range(len(true))] == pytest.approx(true, abs=6e-3)
    assert list(shown.values()) == sorted(shown.values(), reverse=True)


def test_hostile_name_is_text(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    browser.run("vepmReport.pickNode(3)")
    assert "window.hacked=1" in browser.driver.find_element("id", "panel-title").text
    assert browser.run("return window.hacked") is None


def test_filter_changes_what_is_drawn(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    everything = browser.run(DRAWN_EDGES)
    assert everything == read_run(node_run).edge_index.shape[1] // 2
    browser.click("#chips [data-community='1']")
    only = browser.run(DRAWN_EDGES)
    assert 0 < only < everything
    assert browser.all("#chips [data-community='1'][aria-pressed='true']")
    hidden = "return vepmReport.cy.edges('.off').some(e => e.visible())"
    assert browser.run(hidden) is False
    browser.click("#chips [data-community='all']")
    assert browser.run(DRAWN_EDGES) == everything


def test_colour_choice_recolours_nodes(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    colours = "return vepmReport.cy.nodes().map(n => n.style('background-color')).join()"
    seen = set()
    for value in ("label", "prediction", "community"):
        Select(browser.driver.find_element("id", "colour")).select_by_value(value)
        seen.add(browser.run(colours))
    assert len(seen) == 3


def test_dark_and_light(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(paper)
    browser.click("#theme")
    dark = browser.run(paper)
    assert dark != light
    assert sum(map(int, dark[4:-1].split(","))) < 150
    browser.click("#theme")
    assert browser.run(paper) == light


def test_dark_by_the_system(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert sum(map(int, paper[4:-1].split(","))) < 150


def test_prints_on_white_paper_in_dark_mode(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    browser.click("#theme")
    label = "return vepmReport.cy.nodes()[0].style('color')"
    colour = "return getComputedStyle(document.querySelector('.eyebrow')).color"
    on_screen = [browser.run(label), browser.run(colour)]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    deadline = time.monotonic() + 20
    while browser.run(label) == on_screen[0] and time.monotonic() < deadline:
        time.sleep(0.1)
    printed = [browser.run(label), browser.run(colour)]
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert paper == "rgb(255, 255, 255)"
    assert printed == ["rgb(27,36,48)", "rgb(11, 122, 117)"] != on_screen


def test_keyboard_walks_the_graph(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    visited = [browser.run("return vepmReport.state.picked")]
    canvas = browser.driver.find_element("id", "canvas")
    for key in (Keys.ARROW_LEFT, Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ARROW_DOWN):
        canvas.send_keys(key)
        visited.append(browser.run("return vepmReport.state.picked"))
    assert None not in visited
    assert len(set(visited)) > 1


def test_neighbourhood_of_a_chosen_node(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    Select(browser.driver.find_element("id", "size")).select_by_value("50")
    assert browser.run("return vepmReport.cy.nodes().length") == 50
    start = browser.driver.find_element("id", "start")
    start.clear()
    start.send_keys("paper 20", Keys.ENTER, Keys.TAB)
    assert browser.run("return vepmReport.state.start") == 20
    assert browser.driver.find_element("id", "panel-title").text == "paper 20"


def test_graphs_are_flipped_through_the_most_uncertain_first(
    browser: Browser, graph_run: Path
) -> None:
    run = read_run(graph_run)
    assert run.batch is not None
    assert run.probabilities is not None
    # The page rounds to a tenth of a per cent.
    order = np.argsort((100 * run.probabilities.max(axis=1)).round(1), kind="stable")
    browser.open(graph_run)
    for graph in order[:3]:
        assert browser.driver.find_element("id", "panel-title").text == f"graph {graph}"
        assert browser.run("return vepmReport.cy.nodes().length") == (run.batch == graph).sum()
        assert len(browser.all("#part-pictures canvas")) == run.num_metacommunities
        browser.click("#next")
    browser.click("#previous")
    assert browser.driver.find_element("id", "panel-title").text == f"graph {order[2]}"
    Select(browser.driver.find_element("id", "graph-choice")).select_by_value("5")
    assert browser.driver.find_element("id", "panel-title").text == "graph 5"


def test_parts_of_the_view_are_drawn_apart(browser: Browser, graph_run: Path) -> None:
    browser.open(graph_run)
    pictures = """return [...document.querySelectorAll('#part-pictures canvas')]
      .map(canvas => canvas.toDataURL())"""
    first = browser.run(pictures)
    assert len(set(first)) == 3
    browser.click("#next")
    assert browser.run(pictures) != first


def test_wrong_and_uncertain_nodes_are_one_click_away(browser: Browser, node_run: Path) -> None:
    run = read_run(node_run)
    assert run.labels is not None
    assert run.probabilities is not None
    browser.open(node_run)
    wrong = (run.labels >= 0) & (run.labels != run.prediction)
    assert f"({wrong.sum()})" in browser.driver.find_element("id", "find-wrong").text
    seen = set()
    for _ in range(2):
        browser.click("#find-wrong")
        seen.add(browser.run("return vepmReport.state.picked"))
    assert len(seen) == 2
    assert wrong[sorted(seen)].all()
    (conclusion,) = browser.all("#conclusion")
    count = browser.driver.find_element("id", "find-unsure").text.split("(")[1].rstrip(")")
    assert f"{count} nodes are uncertain" in conclusion.text
    browser.click("#find-unsure")
    picked = browser.run("return vepmReport.state.picked")
    confidence = run.probabilities.max(axis=1)
    assert confidence[picked] == pytest.approx(confidence.min(), abs=1e-3)


def test_picked_edge_tells_why_it_exists_and_how_surprising_it_is(
    browser: Browser, node_run: Path
) -> None:
    run = read_run(node_run)
    browser.open(node_run)
    browser.click("#find-edge")
    edge = int(browser.driver.find_element("id", "panel-title").get_attribute("data-edge"))
    data = browser.run("return vepmReport.data.edges")
    ends = [data["source"][edge], data["target"][edge]]
    parts = run.activation * run.memberships[ends[0]] * run.memberships[ends[1]]
    told = browser.driver.find_element("id", "surprise")
    assert float(told.get_attribute("data-probability")) == pytest.approx(
        1 - np.exp(-parts.sum()), rel=0.03
    )
    source, target = run.edge_index
    rates = (run.activation * run.memberships[source] * run.memberships[target]).sum(axis=1)
    assert parts.sum() == pytest.approx(rates.min(), rel=0.05)
    reasons = [int(row.get_attribute("data-reason")) for row in browser.all("#panel [data-reason]")]
    assert reasons[0] == parts.argmax()
    panel = browser.driver.find_element("id", "panel").text
    for words in ("Why this edge exists", "How surprising it is", "Its split among communities"):
        assert words in panel


CELLS = """
const column = `#prediction-table tbody td:nth-child(${arguments[0]})`;
return [...document.querySelectorAll(column)].map(cell => cell.textContent);
"""


def test_predictions_are_searched_and_sorted(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    probability = 4
    shown = [float(cell) for cell in browser.run(CELLS, probability)]
    assert shown == sorted(shown)
    browser.click(f"#prediction-table th:nth-child({probability}) button")
    shown = [float(cell) for cell in browser.run(CELLS, probability)]
    assert len(shown) == 20
    assert shown == sorted(shown, reverse=True)
    assert browser.all("#prediction-table th[aria-sort='descending']")
    search = browser.driver.find_element("css selector", "#prediction-table input")
    search.send_keys("paper 7")
    names = browser.run(CELLS, 1)
    assert sorted(names) == sorted(["paper 7", *(f"paper 7{digit}" for digit in range(10))])
    browser.run("document.querySelector('#prediction-table tbody tr').click()")
    assert browser.driver.find_element("id", "panel-title").text == names[0]


def test_warnings_stand_at_the_top(browser: Browser, tmp_path: Path) -> None:
    folder = write_node_run(tmp_path / "run", nodes=40)
    rewrite_metrics(folder, warnings=["every node is predicted to be of class 'red'; try again"])
    write_report(folder)
    browser.open(folder)
    (banner,) = browser.all("[role=alert]")
    assert "every node is predicted to be of class 'red'" in banner.text
    assert banner.location["y"] < browser.driver.find_element("id", "graph").location["y"]
    (conclusion,) = browser.all("#conclusion")
    assert "of the test nodes are classified correctly" in conclusion.text
    assert conclusion.location["y"] < banner.location["y"]


def test_panel_shows_that_it_scrolls(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    browser.run("vepmReport.pickNode(7)")
    time.sleep(0.2)
    more = browser.driver.find_element("id", "more")
    assert more.is_displayed()
    browser.run("const p = document.getElementById('panel'); p.scrollTop = p.scrollHeight")
    time.sleep(0.3)
    assert not more.is_displayed()


def test_two_runs_are_compared(browser: Browser, node_run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(node_run, other)
    run = read_run(node_run)
    assert run.prediction is not None
    assert run.labels is not None
    test = np.flatnonzero(run.masks["test"] & (run.labels >= 0))
    changed = run.prediction.copy()
    changed[test[:4]] = (changed[test[:4]] + 1) % 3
    change(other, prediction=changed)
    config = (other / "config.toml").read_text()
    (other / "config.toml").write_text(config + "temperature = 0.5\n")
    write_comparison([node_run, other], tmp_path / "report.html")
    browser.open(tmp_path)
    time.sleep(0.3)
    assert browser.driver.get_log("browser") == []
    assert [url for url in browser.requests() if not url.startswith(("file:", "data:"))] == []
    assert len(browser.all("#runs tbody tr")) == 2
    assert [row.text for row in browser.all("#settings tbody th")] == ["model.temperature"]
    rows = browser.all("#disagreement-table tbody tr")
    assert len(rows) == 4
    assert {row.text.splitlines()[0].split(" ", 2)[1] for row in rows} == {str(n) for n in test[:4]}
    conclusion = browser.driver.find_element("id", "conclusion").text
    assert f"Of {len(test)} test nodes, node gets" in conclusion


def test_fits_a_phone(browser: Browser, node_run: Path) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    browser.open(node_run)
    wide = browser.run("return document.documentElement.scrollWidth - innerWidth")
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= 0
