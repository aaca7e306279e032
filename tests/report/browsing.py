"""A real browser, and what the tests of a page ask of it."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
Select = pytest.importorskip("selenium.webdriver.support.ui").Select

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
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


def opened() -> Iterator[Browser]:
    """A browser for as long as it is asked for."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
        # What the browser asks for when it starts is not the page's.
        driver.get("about:blank")
        driver.get_log("performance")
        yield Browser(driver)
        driver.quit()


FREEST_NODE = """
const cy = vepmReport.cy;
const box = document.getElementById('canvas').getBoundingClientRect();
const at = cy.nodes().map(n => [n.data('node'), n.renderedPosition()]);
const room = ([own, p]) => Math.min(...at.map(([other, q]) =>
  own === other ? Infinity : Math.hypot(p.x - q.x, p.y - q.y)));
const [node, p] = at.reduce((best, next) => (room(next) > room(best) ? next : best));
return [node, p.x + box.left, p.y + box.top];
"""


def click_a_node(browser: Browser) -> int:
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
