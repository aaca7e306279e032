"""The built site: strict, whole, without dead links or requests to other hosts."""

import ast
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.pages import DOCS, ROOT
from report.browsing import needs_browser, opened
from vepm.training.config import FIELDS

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[([^\]]+)\]\(screenshots/([\w.-]+)\)")
FIGURE = re.compile(r"<!-- figure: ([\w-]+) \|")

builds = pytest.mark.skipif(
    find_spec("mkdocstrings") is None, reason="needs the docs extra: pip install '.[docs]'"
)


class Page(HTMLParser):
    """What a page links to, loads and can be linked at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        for name in ("id", "name"):
            if found.get(name):
                self.anchors.add(str(found[name]))
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        # A canonical link names the page, it does not load it.
        loads = tag in ("script", "img", "source", "iframe") or (
            tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload")
        )
        target = found.get("src") or (found.get("href") if tag == "link" else None)
        if loads and target and not target.startswith("data:"):
            self.loads.append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr, built.stderr
    return folder


@builds
def test_every_internal_link_and_file_of_the_site_is_there(site: Path) -> None:
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }
    dead = [
        f"{path.relative_to(site.resolve())}: {link}"
        for path, page in pages.items()
        if path.name != "404.html"
        for link in [*page.links, *page.loads]
        if not _alive(link, path, pages)
    ]
    assert len(pages) > 20
    assert not dead


def _alive(link: str, origin: Path, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (origin.parent / unquote(parts.path)).resolve() if parts.path else origin
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or anchor.startswith("__") or anchor in pages[target].anchors


@builds
def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    for path in site.rglob("*.html"):
        loads = Page(path.read_text(encoding="utf-8")).loads
        assert not [load for load in loads if urlsplit(load).netloc], path.name


@builds
def test_generated_parts_are_in_the_pages(site: Path) -> None:
    settings = (site / "settings.html").read_text(encoding="utf-8")
    for name in FIELDS:
        assert f"<code>{name}</code>" in settings, name
    works = (site / "how-it-works.html").read_text(encoding="utf-8")
    assert works.count("<figure") == 6
    assert works.count("<math") > 30
    commands = (site / "command-line.html").read_text(encoding="utf-8")
    assert "vepm communities" in commands
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "Speed beside GAT" in home
    results = (site / "results.html").read_text(encoding="utf-8")
    assert results.count("<figure") == len(list((ROOT / "results").glob("*/*.svg"))) > 0
    assert "<td>365</td>" in results
    cards = (site / "model-cards.html").read_text(encoding="utf-8")
    assert cards.count("<h3") >= 10
    tour = (site / "tour.html").read_text(encoding="utf-8")
    assert tour.count("data:image/png") == 3


@builds
def test_reference_shows_public_bases_only(site: Path) -> None:
    for path in (site / "api").glob("*.html"):
        text = re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))
        for line in re.findall(r"Bases:\s*(.+)", text):
            assert not re.search(r"\b_\w+|\bEstimator\b", line), f"{path.name}: {line}"


@builds
def test_no_formula_or_role_is_left_raw(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert 'class="arithmatex"' not in text, path.name
        assert ":math:" not in text, path.name
        assert ".. math::" not in text, path.name
        assert not re.search(r":(class|func|meth|data):`", text), path.name
        assert not re.search(r"<m[io][^>]*>\\[A-Za-z]+</m[io]>", text), path.name


@builds
@needs_browser
def test_search_works_from_disk(site: Path) -> None:
    for browser in opened():
        browser.driver.get((site / "tutorials" / "nodes.html").as_uri())
        browser.run("document.querySelector('[data-md-component=search-query]').focus()")
        browser.all("[data-md-component=search-query]")[0].send_keys("calibration")
        deadline = time.monotonic() + 30
        while not browser.all(".md-search-result__item") and time.monotonic() < deadline:
            time.sleep(0.2)
        links = [link.get_attribute("href") for link in browser.all("a.md-search-result__link")]
        assert any("page.html" in str(link) or "accuracy.html" in str(link) for link in links)


def test_every_warning_has_a_cause_and_a_cure() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    titles = [_words(line) for line in re.findall(r"^### (.+)$", page, re.M)]
    tree = ast.parse((ROOT / "src/vepm/training/fitted.py").read_text(encoding="utf-8"))
    warnings = [_words(ast.unparse(node)) for node in ast.walk(tree) if _is_text(node)]
    assert len(warnings) > 3
    for warning in warnings:
        assert max(len(warning & title) / len(title) for title in titles) > 0.5, warning


def test_every_warning_about_data_is_explained() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    table = page.split("## Warnings about data")[1].split("## Errors")[0]
    explained = re.findall(r"^\| `(.+?)` \|", table, re.M)
    files = [path for path in (ROOT / "src" / "vepm").rglob("*.py") if path.parent.name != "report"]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    for warning in explained:
        assert all(words in re.sub(r'"\s+"', "", source) for words in warning.split("...")), warning
    # One hands on what NetworkX says of a file.
    assert source.count("logger.warning(") == len(explained) + 1


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", text.lower()))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Yield) and isinstance(node.value, ast.JoinedStr | ast.Constant)


def _links() -> Iterator[tuple[Path, str]]:
    for path in sorted(DOCS.rglob("*.md")):
        prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in LINK.findall(prose):
            yield path, link


def test_links_between_pages_point_at_files() -> None:
    found = list(_links())
    assert len(found) > 20
    for path, link in found:
        parts = urlsplit(link)
        if not parts.scheme and parts.path:
            assert (path.parent / parts.path).exists(), f"{path.relative_to(DOCS)}: {link}"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def test_every_figure_is_drawn_shown_and_small() -> None:
    script = (DOCS / "figures.py").read_text(encoding="utf-8")
    drawn = {path.stem for path in (DOCS / "figures").glob("*.svg")}
    shown = {
        name for path in DOCS.rglob("*.md") for name in FIGURE.findall(path.read_text("utf-8"))
    }
    assert drawn == shown == set(re.findall(r'^    "(\w+)": \w+,$', script, re.M))
    assert all(path.stat().st_size < 300_000 for path in (DOCS / "figures").glob("*.svg"))


def test_every_screenshot_is_taken_shown_described_and_small() -> None:
    taken = list((DOCS / "screenshots").glob("*"))
    shown = PICTURE.findall((DOCS / "page.md").read_text("utf-8"))
    assert {name for _, name in shown} == {path.name for path in taken}
    script = (DOCS / "screenshots.py").read_text("utf-8")
    looks = re.findall(r'\("(light|dark|phone)", [A-Z]+\)', script)
    names = {*re.findall(r'keep\(driver, "([a-z-]+)"\)', script), *(f"digits-{x}" for x in looks)}
    assert {path.stem for path in taken} == names
    assert all(len(words) > 20 for words, _ in shown)
    assert all(path.stat().st_size < 150_000 for path in taken)


def test_notebook_is_small_and_has_outputs() -> None:
    path = DOCS / "tour.ipynb"
    assert path.stat().st_size < 300_000
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in cells)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3


def test_every_path_in_the_tree_of_sources_exists() -> None:
    tree = (DOCS / "source.md").read_text("utf-8").split("```text")[1].split("```")[0]
    names = re.findall(r"^ +([a-z_]+(?:\.py|/))", tree, re.MULTILINE)
    found = {path.name for path in (ROOT / "src" / "vepm").rglob("*")}
    assert len(names) > 15
    assert [name for name in names if name.rstrip("/") not in found] == []
