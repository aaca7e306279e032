"""The README keeps its promises: short, its picture small, its examples run, its numbers true."""

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from docs.pages import ROOT, blocks, command, run
from people import write_people

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_is_short_and_its_picture_small() -> None:
    assert len(README.splitlines()) <= 110
    (picture,) = re.findall(r'<img src="(docs/.+?\.png)" .*alt=".{40,}">', README)
    assert (ROOT / picture).stat().st_size < 300_000


def test_numbers_are_those_of_the_result_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tools"))
    made = import_module("headlines")
    for name, body in (
        ("headlines", made.headlines()),
        ("split", made.split_table(made.EXAMPLES)),
    ):
        said = README.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0].strip()
        assert said == body


def test_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_people(tmp_path / "my-graph")
    monkeypatch.chdir(tmp_path)
    ran = [block.kind for block, _ in run(README, "README.md")]
    assert ran == ["bash", "python", "python"]
    assert (tmp_path / "runs" / "mine" / "report.html").exists()
    assert (tmp_path / "predictions.csv").exists()
    assert (tmp_path / "runs" / "groups" / "memberships.csv").exists()


def test_every_make_target_and_command_exists(capsys: pytest.CaptureFixture[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^    make (\w+)", README, re.M)
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)
    command("vepm --help")
    listed = capsys.readouterr().out
    for name in ("evaluate", "reproduce", "tune", "bench", "datasets"):
        assert f"`{name}`" in README
        assert name in listed


def test_the_demo_writes_the_pages_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    demo = makefile.split("\ndemo:")[1].split("\n\n")[0]
    monkeypatch.chdir(tmp_path)
    for line in re.findall(r"^\t\$\(BIN\)/(vepm .+)$", demo, re.M):
        command(line)
    pages = re.findall(r"[\w/-]+\.html", demo)
    assert len(pages) == 2
    assert all((tmp_path / page).exists() for page in pages)


def test_every_link_leads_somewhere() -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", README):
        assert (ROOT / link).exists(), link


def test_examples_are_short() -> None:
    for block in blocks(README):
        assert len(block.code.splitlines()) <= 10


def test_the_order_of_the_packages_is_that_of_the_contract() -> None:
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    drawn = README.split("to their right:\n\n")[1].split("\n\n")[0]
    assert re.findall(r"\w+", drawn) == [name.strip("()") for name in contract["layers"]]
