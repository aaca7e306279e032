"""What the wheel promises: its version, its extras and the packages that it needs."""

import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import vepm
from vepm import __version__

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
NAMES = {"sklearn": "scikit-learn", "jinja2": "Jinja2"}
EXTRAS = {
    "triton": "gpu",
    "optuna": "tune",
    "leidenalg": "leiden",
    "igraph": "leiden",
    "pymetis": "metis",
}


def imported(paths: list[Path]) -> set[str]:
    """Top-level packages outside of the standard library that files import."""
    found: set[str] = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {"vepm"}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=;\[ ]", line)[0] for line in requirements}


def test_the_version_is_written_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "src/vepm/__init__.py"
    for path, line in (
        ("CITATION.cff", f"version: {__version__}"),
        ("docs/bibliography.md", f"Version {__version__},"),
        ("CHANGELOG.md", f"## {__version__}"),
    ):
        assert line in (ROOT / path).read_text()


def test_every_package_that_is_imported_is_required() -> None:
    found = {NAMES.get(name, name) for name in imported([*(ROOT / "src").rglob("*.py")])}
    extras = {
        name: names(PROJECT["optional-dependencies"][extra]) for name, extra in EXTRAS.items()
    }
    assert all(name in extra for name, extra in extras.items())
    required = names(PROJECT["dependencies"])
    assert found - required - EXTRAS.keys() == set()
    assert required - found == set()


def test_the_divergence_is_known_unless_the_command_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(importlib, "import_module", loaded.append)
    monkeypatch.setitem(sys.modules, "vepm_command", ModuleType("vepm_command"))
    importlib.reload(vepm)
    assert loaded == []
    monkeypatch.delitem(sys.modules, "vepm_command")
    importlib.reload(vepm)
    assert loaded == ["vepm.nn"]


def test_extras_are_pinned_too() -> None:
    lines = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    pinned = {line.split("==")[0] for line in lines}
    for name in ("gpu", "tune", "leiden", "metis", "docs", "dev"):
        wanted = names(PROJECT["optional-dependencies"][name]) - {"vepm"}
        assert {each.lower() for each in wanted} - pinned == set()
