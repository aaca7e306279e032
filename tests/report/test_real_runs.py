"""Pages of real runs, as the command line leaves them, in a real browser."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from cli.running import succeed
from vepm.report import read_run

from .browsing import DRAWN_EDGES, Browser, click_a_node, needs_browser, opened

pytestmark = needs_browser

NEEDS_DATA = pytest.mark.skipif(
    not os.environ.get("VEPM_DATA"), reason="needs benchmark data; set VEPM_DATA to a PyG root"
)
LEARNED = ("--set", "partition=learned")
RUNS = {
    "digits": ("train", "digits", "--baselines", "gcn,label-propagation", *LEARNED),
    "karate": ("communities", "KarateClub", "-c", "4", "-k", "4"),
    "cora": ("train", "Cora", *LEARNED),
    "mutag": ("train", "MUTAG"),
}
SHORT = ("--set", "pretrain_epochs=40", "--set", "epochs=20", "--device", "cpu")
LARGEST_PAGE = 5_000_000
LONGEST_WAIT = 20.0
PAINTED = """
const layers = [...document.querySelectorAll('#canvas canvas')];
return layers.map(layer => layer.toDataURL()).join();
"""
PAPER = "return getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from opened()


@pytest.fixture(
    scope="module",
    params=[
        "digits",
        "karate",
        pytest.param("cora", marks=NEEDS_DATA),
        pytest.param("mutag", marks=NEEDS_DATA),
    ],
)
def real_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real") / str(request.param)
    succeed(*RUNS[request.param], *SHORT, "-o", folder)
    return folder


def picture(browser: Browser) -> str:
    """The graph as it is painted."""
    return str(browser.run(PAINTED))


def repainted(browser: Browser, before: str) -> bool:
    """Whether the graph looks different, now or soon."""
    deadline = time.monotonic() + LONGEST_WAIT
    while picture(browser) == before:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def brightness(colour: str) -> int:
    return sum(map(int, colour[4:-1].split(",")))


def test_page_is_small(real_run: Path) -> None:
    assert (real_run / "report.html").stat().st_size < LARGEST_PAGE


def test_a_page_of_five_thousand_nodes_is_small_and_quick(browser: Browser, tmp_path: Path) -> None:
    data = "planted:nodes=5000,edges=18000"
    succeed("train", data, *SHORT, "-o", tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    ready = []
    for _ in range(3):  # other work on the machine may slow one of them
        browser.open(tmp_path)
        ready.append(browser.run("return performance.getEntriesByName('vepm-ready')[0].startTime"))
    assert browser.run("return vepmReport.data.nodes.name.length") == 5000
    assert browser.run("return vepmReport.data.edges.source.length") > 17_000
    assert len(browser.panel_memberships()) == 33
    assert min(ready) < 2000


def test_page_opens_quietly_and_offline(browser: Browser, real_run: Path) -> None:
    # A fresh browser is still loading a start page of its own.
    browser.driver.get("about:blank")
    browser.open(real_run)
    assert browser.run("return vepmReport.cy.nodes().length") > 0
    time.sleep(0.5)
    assert browser.driver.get_log("browser") == []
    asked = browser.requests()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_picked_node_shows_its_true_memberships(browser: Browser, real_run: Path) -> None:
    memberships = load_file(real_run / "outputs.safetensors")["memberships"]
    names = list(read_run(real_run).node_names)
    assert len(set(names)) == len(names)
    browser.open(real_run)
    click_a_node(browser)
    title = browser.driver.find_element("id", "panel-title")
    assert title.get_attribute("data-node") is not None
    true = memberships[names.index(title.text)]
    shown = browser.panel_memberships()
    assert sorted(shown) == list(range(len(true)))
    for affiliation, value in shown.items():
        assert value == pytest.approx(true[affiliation], rel=6e-3, abs=1e-30)


def test_filter_changes_what_is_drawn(browser: Browser, real_run: Path) -> None:
    browser.open(real_run)
    everything, before = browser.run(DRAWN_EDGES), picture(browser)
    drawn = []
    chips = [chip.get_attribute("data-community") for chip in browser.all("#chips button")]
    for community in [name for name in chips if name != "all"]:
        browser.click(f"#chips [data-community='{community}']")
        drawn.append(browser.run(DRAWN_EDGES))
        if 0 < drawn[-1] < everything:
            break
        browser.click("#chips [data-community='all']")
    assert 0 < drawn[-1] < everything
    assert repainted(browser, before)
    browser.click("#chips [data-community='all']")
    assert browser.run(DRAWN_EDGES) == everything


def test_dark_mode(browser: Browser, real_run: Path) -> None:
    browser.open(real_run)
    light, drawn_light = browser.run(PAPER), picture(browser)
    browser.click("#theme")
    dark = browser.run(PAPER)
    assert brightness(dark) < 150 < 600 < brightness(light)
    assert repainted(browser, drawn_light)
    assert browser.driver.get_log("browser") == []
    browser.click("#theme")
    assert browser.run(PAPER) == light
