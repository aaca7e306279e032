"""The audit of the pinned packages: what stops a build and what does not."""

import importlib.util
from datetime import date
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).resolve().parents[1] / ".ci" / "audit.py"
CLEAN = {"name": "numpy", "version": "2.0", "vulns": []}
UNKNOWN = {"name": "torch", "skip_reason": "not found"}
HURT = {
    "name": "aiohttp",
    "version": "3.0",
    "vulns": [{"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"]}],
}


@pytest.fixture
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("audit", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("packages", [None, [], [UNKNOWN]])
def test_a_service_that_cannot_be_asked_stops_nothing(audit: Any, packages: Any) -> None:
    said, fine = audit.judge(packages, set())
    assert fine
    assert "nothing was audited" in said


def test_a_vulnerability_stops_the_build_unless_it_is_accepted(audit: Any) -> None:
    said, fine = audit.judge([CLEAN, HURT, UNKNOWN], set())
    assert not fine
    assert "aiohttp 3.0: PYSEC-2026-1" in said
    assert audit.judge([CLEAN, HURT], {"CVE-2026-1"})[1]
    assert audit.judge([CLEAN, UNKNOWN], set()) == (
        "1 packages audited, none vulnerable; 1 not known there",
        True,
    )


def test_exceptions_have_reasons_and_run_out(audit: Any, tmp_path: Path) -> None:
    audit.HERE = tmp_path
    (tmp_path / "accepted-vulnerabilities.toml").write_text(
        '[CVE-1]\nreason = "not used"\nuntil = 2026-12-01\n[CVE-2]\nreason = ""\nuntil = 2099-01-01'
    )
    assert audit.accepted(date(2026, 12, 1)) == {"CVE-1"}
    assert audit.accepted(date(2026, 12, 2)) == set()
