"""Pictures of the page in a browser, for README and documentation: ``make screenshots``.

Trains what is not yet under ``runs/screenshots`` (some minutes on a laptop), opens each page in
headless Chromium and writes ``docs/screenshots/*.webp`` and ``docs/assets/page.png``. MUTAG is read
from ``VEPM_DATA``, or downloaded. Needs ``chromium`` and ``chromedriver``, on Debian the packages
``chromium`` and ``chromium-driver``.
"""

import base64
import io
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "screenshots"
PICTURES = ROOT / "docs" / "screenshots"
TRAININGS = {
    "digits": ["digits", "--baselines", "gcn,label-propagation", "--set", "partition=learned"],
    "relations": ["planted-relations", "--baselines", "gcn,gat"],
    "mutag": ["MUTAG", "--set", "pretrain_epochs=100", "--set", "epochs=100"],
}
DESKTOP = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}
SMALL = DESKTOP | {"height": 965, "deviceScaleFactor": 0.75}
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
SHORTEN = """
const style = document.createElement("style");
style.textContent = `.contents, .headline, #graph > :not(.stage) { display: none }
  section { margin-top: 1.5rem }`;
document.head.append(style);
const size = document.getElementById("size");
size.value = "50";
size.dispatchEvent(new Event("change"));
vepmReport.cy.resize();
vepmReport.cy.fit(undefined, 24);
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


def photograph_digits(driver: Any, page: Path) -> None:
    """The page of the digits in light and dark, filtered, with a node and an edge picked."""
    for look, screen in (("light", DESKTOP), ("dark", DESKTOP), ("phone", PHONE)):
        show(driver, page, screen, dark=look == "dark")
        keep(driver, f"digits-{look}")
    show(driver, page, DESKTOP)
    driver.execute_script(SCROLL, "#find")
    driver.execute_script(FILTER)
    keep(driver, "digits-filtered")
    driver.execute_script(UNFILTER)
    driver.execute_script(PICK)
    keep(driver, "digits-picked")
    driver.execute_script("document.querySelector('#find-edge').click()")
    keep(driver, "digits-edge")
    driver.execute_script(SCROLL, "#parts")
    keep(driver, "digits-parts")


def photograph_relations(driver: Any, page: Path) -> None:
    """The picture of the README: the conclusion and the graph alone."""
    show(driver, page, SMALL)
    driver.execute_script(SHORTEN)
    keep(driver, "page", ROOT / "docs" / "assets", "png")


def photograph_mutag(driver: Any, page: Path) -> None:
    """The most uncertain of the molecules, and its parts."""
    show(driver, page, DESKTOP)
    driver.execute_script(SCROLL, "#find")
    keep(driver, "mutag-uncertain")


def show(driver: Any, page: Path, screen: dict[str, Any], *, dark: bool = False) -> None:
    """Open a page on a screen."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.get(page.as_uri())


def keep(driver: Any, name: str, folder: Path = PICTURES, kind: str = "webp") -> None:
    """Write what the window shows."""
    time.sleep(1)  # fonts and the graph are painted after the page has loaded
    shot = {"format": kind} | ({"quality": QUALITY} if kind == "webp" else {})
    found = driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]
    folder.mkdir(exist_ok=True)
    content = base64.b64decode(found)
    if kind == "png":  # 256 colours are enough for a page, and a third of the size
        shrunk = io.BytesIO()
        Image.open(io.BytesIO(content)).convert("RGB").quantize(256).save(
            shrunk, "png", optimize=True
        )
        content = shrunk.getvalue()
    (folder / f"{name}.{kind}").write_bytes(content)


def main() -> None:
    """Train, open, keep."""
    pages = {name: train(name) for name in TRAININGS}
    with chromium() as driver:
        photograph_digits(driver, pages["digits"])
        photograph_relations(driver, pages["relations"])
        photograph_mutag(driver, pages["mutag"])


if __name__ == "__main__":
    main()
