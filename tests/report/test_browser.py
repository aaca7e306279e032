"""The page in a real browser."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vepm.report import read_run

from .browsing import DRAWN_EDGES, Browser, Keys, Select, click_a_node, needs_browser, opened

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
    assert "argue for" in panel


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
    before = browser.run("return vepmReport.state.picked")
    canvas = browser.driver.find_element("id", "canvas")
    for key in (Keys.ARROW_LEFT, Keys.ARROW_RIGHT, Keys.ARROW_UP):
        canvas.send_keys(key)
    after = browser.run("return vepmReport.state.picked")
    assert after is not None
    assert after != before


def test_neighbourhood_of_a_chosen_node(browser: Browser, node_run: Path) -> None:
    browser.open(node_run)
    Select(browser.driver.find_element("id", "size")).select_by_value("50")
    assert browser.run("return vepmReport.cy.nodes().length") == 50
    start = browser.driver.find_element("id", "start")
    start.clear()
    start.send_keys("paper 20", Keys.ENTER, Keys.TAB)
    assert browser.run("return vepmReport.state.start") == 20
    assert browser.driver.find_element("id", "panel-title").text == "paper 20"


def test_graphs_can_be_chosen(browser: Browser, graph_run: Path) -> None:
    run = read_run(graph_run)
    browser.open(graph_run)
    Select(browser.driver.find_element("id", "graph-choice")).select_by_value("5")
    assert run.batch is not None
    assert browser.run("return vepmReport.cy.nodes().length") == (run.batch == 5).sum()
    assert browser.driver.find_element("id", "panel-title").text == "graph 5"
    browser.click("#next")
    assert browser.driver.find_element("id", "panel-title").text == "graph 6"


def test_fits_a_phone(browser: Browser, node_run: Path) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    browser.open(node_run)
    wide = browser.run("return document.documentElement.scrollWidth - innerWidth")
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= 0
