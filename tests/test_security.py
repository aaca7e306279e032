"""SECURITY.md names files that exist, and its numbers are those of the records."""

import importlib.util
import re

import pytest

from docs.pages import ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_every_file_that_is_named_exists() -> None:
    named = re.findall(r"`((?:src|results|\.ci)/[\w./-]+)`", PAGE)
    assert len(named) >= 3
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_numbers_are_those_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tools"))
    found = importlib.util.spec_from_file_location("records", ROOT / "docs" / "tools" / "soak.py")
    assert found is not None
    assert found.loader is not None
    records = importlib.util.module_from_spec(found)
    found.loader.exec_module(records)
    said = PAGE.split("<!-- soak -->")[1].split("<!-- /soak -->")[0].strip()
    assert said == records.lines()
