"""The page in a real browser."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vepm.report import read_run

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
Select = pytest.importorskip("selenium.webdriver.support.ui").Select

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver (Debian: chromium-driver)"
)
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1200,900",
]
DRAWN_EDGES = "return vepmReport.cy.edges().filter(e => !e.hasClass('off')).length"


class Browser:
    """A page opened once, with what the tests ask of it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, folder: Path) -> None:
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        self.driver.get((folder / "report.html").as_uri())

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def click(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).click()", selector)

    def requests(self) -> list[str]:
        messages = (json.loads(e["message"])["message"] for e in self.driver.get_log("performance"))
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def panel_memberships(self) -> dict[int, float]:
        rows = self.all("#panel [data-affiliation]")
        return {
            int(row.get_attribute("data-affiliation")): float(row.get_attribute("data-value"))
            for row in rows
        }


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
        yield Browser(driver)
        driver.quit()


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


FREEST_NODE = """
const cy = vepmReport.cy;
const box = document.getElementById('canvas').getBoundingClientRect();
const at = cy.nodes().map(n => [n.data('node'), n.renderedPosition()]);
const room = ([own, p]) => Math.min(...at.map(([other, q]) =>
  own === other ? Infinity : Math.hypot(p.x - q.x, p.y - q.y)));
const [node, p] = at.reduce((best, next) => (room(next) > room(best) ? next : best));
return [node, p.x + box.left, p.y + box.top];
"""


def _click_a_node(browser: Browser) -> int:
    """A real mouse click on the node that no other node covers; which one it is."""
    browser.run("document.documentElement.style.scrollBehavior = 'auto'")
    browser.run("document.getElementById('canvas').scrollIntoView({block: 'center'})")
    browser.run("vepmReport.cy.resize()")
    node, x, y = browser.run(FREEST_NODE)
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
        browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)
        time.sleep(0.2)
    return int(node)


def test_picked_node_shows_its_true_memberships(browser: Browser, node_run: Path) -> None:
    run = read_run(node_run)
    browser.open(node_run)
    node = _click_a_node(browser)
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
