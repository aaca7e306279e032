"""Which tests are closest to a module, by what imports what."""

import ast
import functools
import re
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
SOURCE, TESTS = HERE / "src", HERE / "tests"


def closest_tests(module: str) -> tuple[Path, ...]:
    """The test files from which the fewest imports lead to a module, the closest first.

    Of two that are equally close, the one in ``tests/PACKAGE`` for ``vepm.PACKAGE`` comes first,
    then the one that mentions the module more often.
    """
    package, name = [*module.split("."), ""][1], module.split(".")[-1]
    ranked = []
    for test, path in files().items():
        if not path.stem.startswith("test_") or module not in _distances(test):
            continue
        # A file of the module's own name is one import closer.
        distance = _distances(test)[module] - (path.stem == f"test_{name}")
        mentions = len(re.findall(rf"\b{name}", path.read_text(), re.IGNORECASE))
        ranked.append((distance, package not in path.parts, -mentions, path))
    return tuple(path for *_, path in sorted(ranked))


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
def _distances(start: str) -> dict[str, int]:
    """Imports that lead from a module to others, at the least."""
    found, frontier = {start: 0}, [start]
    for module in frontier:
        for other in _imports(module) - found.keys():
            found[other] = found[module] + 1
            frontier.append(other)
    return found


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
