"""Which tests are closest to a module, by what they import and the words they use."""

import ast
import functools
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer

HERE = Path(__file__).resolve().parents[2]
SOURCE, TESTS = HERE / "src", HERE / "tests"


def closest_tests(module: str) -> tuple[Path, ...]:
    """The test files that lead to a module, the most similar in words first."""
    similar = _similarities(module)
    reached = [test for test in similar if module in _reached(test)]
    ranked = sorted(reached, key=lambda test: similar[test], reverse=True)
    return tuple(files()[test] for test in ranked)


def _similarities(module: str) -> dict[str, float]:
    """How similar the words of test files are to those of a module, rare words counting more."""
    weights, names = _words()
    found = (weights @ weights[names.index(module)].T).toarray().flatten()
    return {
        name: value
        for name, value in zip(names, found, strict=True)
        if files()[name].stem.startswith("test_")
    }


@functools.cache
def _words() -> tuple[Any, list[str]]:
    """Weights of the words of every file, and the names of the files."""
    counter = TfidfVectorizer(token_pattern=r"[A-Za-z]{3,}", sublinear_tf=True)
    return counter.fit_transform(path.read_text() for path in files().values()), [*files()]


@functools.cache
def files() -> dict[str, Path]:
    """Every module of the package and of its tests, by name."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for root in (SOURCE, TESTS)
        for path in root.rglob("*.py")
    }


@functools.cache
def tree_of(module: str) -> ast.Module:
    """The code of a module."""
    return ast.parse(files()[module].read_text())


@functools.cache
def _reached(start: str) -> frozenset[str]:
    """Modules that imports lead to from a module."""
    found, frontier = {start}, [start]
    for module in frontier:
        fresh = _imports(module) - found
        found |= fresh
        frontier += fresh
    return frozenset(found)


@functools.cache
def _imports(module: str) -> frozenset[str]:
    """Modules that a module imports from; of a package, those that define what is imported."""
    nodes = ast.walk(tree_of(module))
    pairs = (
        (node.module, alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module in files()
        for alias in node.names
    )
    return frozenset(_home(package, name) for package, name in pairs)


@functools.cache
def _home(module: str, name: str) -> str:
    """Where a name that is imported from a module comes from."""
    if f"{module}.{name}" in files():
        return f"{module}.{name}"
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and node.module in files():
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _home(node.module, alias.name)
    return module
