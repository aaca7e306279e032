"""Pictures of the page in a browser, for the documentation: ``make screenshots``.

Trains what is not yet under ``runs/screenshots`` (about five minutes on a laptop), opens each
page in headless Chromium and writes ``docs/screenshots/*.webp``. Cora and MUTAG are read from
``VEPM_DATA``, or downloaded. Needs ``chromium`` and ``chromedriver``, on Debian the packages
``chromium`` and ``chromium-driver``.
"""

import base64
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "screenshots"
PICTURES = ROOT / "docs" / "screenshots"
TRAININGS = {
    "digits": ["digits", "--baselines", "gcn,label-propagation"],
    "cora": ["Cora", "--baselines", "gcn,gat"],
    "mutag": ["MUTAG"],
}
DESKTOP = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1.5, "mobile": True}
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
QUALITY = 72
SCROLL = "document.querySelector(arguments[0]).scrollIntoView({behavior: 'instant'})"
PICK = """
const {cy, pickNode} = vepmReport;
const room = (node) => Math.min(...cy.nodes().map((other) => other === node ? Infinity
  : Math.hypot(node.position().x - other.position().x, node.position().y - other.position().y)));
const linked = cy.nodes().filter((node) => node.degree() >= 3 && node.degree() <= 8);
pickNode(linked.max((node) => room(node)).ele.data("node"));
"""
FILTER = """
const {cy, data} = vepmReport;
const drawn = data.communities.map(() => 0);
cy.edges().forEach((edge) => {
  const share = data.edges.share[edge.data("edge")];
  drawn[share.indexOf(Math.max(...share))] += 1;
});
const most = drawn.indexOf(Math.max(...drawn));
document.querySelector(`#chips [data-community='${most}']`).click();
"""
UNFILTER = "document.querySelector('#chips [data-community=all]').click()"


def train(name: str) -> Path:
    """The page of a run, which is trained if it is not there."""
    folder = RUNS / name
    if not (folder / "report.html").exists():
        output = ["--output", str(folder.relative_to(ROOT)), "--overwrite"]
        words = ["-m", "vepm", "train", *TRAININGS[name], *output]
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True)  # noqa: S603
    return folder / "report.html"


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


def photograph(driver: Any, page: Path) -> None:
    """Every picture of a page."""
    name = page.parent.name
    for look, screen in (("light", DESKTOP), ("dark", DESKTOP), ("phone", PHONE)):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if look == "dark" else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        driver.get(page.as_uri())
        keep(driver, f"{name}-{look}")
        if look == "light":
            driver.execute_script(SCROLL, "#chips")
            driver.execute_script(FILTER)
            keep(driver, f"{name}-filtered")
            driver.execute_script(UNFILTER)
            driver.execute_script(PICK)
            keep(driver, f"{name}-picked")


def keep(driver: Any, name: str) -> None:
    """Write what the window shows."""
    time.sleep(1)  # fonts and the graph are painted after the page has loaded
    shot = {"format": "webp", "quality": QUALITY}
    found = driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{name}.webp").write_bytes(base64.b64decode(found))


def main() -> None:
    """Train, open, keep."""
    pages = [train(name) for name in TRAININGS]
    with chromium() as driver:
        for page in pages:
            photograph(driver, page)


if __name__ == "__main__":
    main()
