"""The sample of mutants covers every package, and changed code is really what the tests see."""

import ast
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tools.mutants import sample
from tools.mutants.closeness import HERE, SOURCE, closest_tests, files
from tools.mutants.sample import (
    EQUIVALENT,
    allot,
    modules,
    mutants_of,
    package_of,
    packages,
    statements,
)

SCRIPT = """
from pathlib import Path
from tools.mutants.__main__ import noticed
from tools.mutants.execute import preload, run_tests
from tools.mutants.sample import Mutant, source_of

preload()
code = source_of("vepm.escaping").read_text()
paths = [Path("tests/test_escaping.py").resolve()]
whole = run_tests(paths, 30, 90)
print(len(whole.passed) > 9, len(whole.slow), whole.failed)
none = run_tests(paths, 30, 0)
print(len(none.passed), none.failed)
endless = code + "for_markdown = lambda text: all(0 == x for x in iter(int, 1))"
found = run_tests(paths, 1, 30, lambda test: "markdown" in test, ("vepm.escaping", endless))
print(len(found.passed), len(found.slow) > 0, found.failed)
other = code + "def for_markdown(text): return 1"
for name in ("json", "markdown"):
    found = run_tests(paths, 30, 90, lambda test: name in test, ("vepm.escaping", other))
    print(name in str(found.failed))
print(repr(run_tests(paths, 30, 90, changed=("vepm.escaping", "no Python")).failed))
for changed in (other, endless, "no Python"):
    print(noticed(Mutant("vepm.escaping", "", 0, 0, changed)))
"""


def test_every_package_is_sampled_in_proportion_to_the_code_of_its_modules() -> None:
    tops = {path.stem for path in (SOURCE / "vepm").iterdir() if path.suffix in ("", ".py")}
    with_code = {name.removeprefix("vepm.") for name in packages()}
    assert with_code <= tops | {"vepm"}
    assert {"nn", "data", "cli", "escaping", "files"} <= with_code
    for package in packages():
        counts = allot(package, 10)
        assert sum(counts.values()) == 10
        assert {package_of(name) for name in counts} == {package}
        assert counts == allot(package, 10)
    inside = {name: statements(name) for name in modules() if package_of(name) == "vepm.training"}
    drawn = allot("vepm.training", 4000)
    largest = max(inside, key=lambda name: inside[name])
    assert abs(drawn[largest] / 4000 - inside[largest] / sum(inside.values())) < 0.03


def test_the_closest_tests_are_those_of_the_module() -> None:
    def closest(module: str) -> Path:
        return closest_tests(module)[0].relative_to(HERE / "tests")

    assert closest("vepm.nn.partitioner") == Path("nn/test_partitioner.py")
    assert closest("vepm.escaping") == Path("test_escaping.py")
    # There is no file of their names; their words lead to the tests.
    assert closest("vepm.search.tuning") == Path("search/test_search.py")
    assert closest("vepm.cli.reproduce") == Path("paper/test_reproduce.py")
    assert [module for module in modules() if len(closest_tests(module)) < 3] == []


def test_mutants_differ_in_what_they_do() -> None:
    found = list(mutants_of("vepm.escaping", 5, Random(0)))
    original = (SOURCE / "vepm" / "escaping.py").read_text()
    assert len({mutant.line for mutant in found}) == 5
    for mutant in found:
        changed, plain = mutant.code.splitlines(), original.splitlines()
        assert changed[mutant.line - 1] != plain[mutant.line - 1]
        assert ast.dump(ast.parse(mutant.code)) != ast.dump(ast.parse(original))


def test_mutants_of_what_nothing_runs_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import os\n\n\n"
        "def double(*, x: int | float = 3) -> float | int:\n    return 2 * x\n"
    )
    monkeypatch.setattr(sample, "source_of", lambda module: path)
    found = [mutant.code for mutant in mutants_of("module", 9, Random(0))]
    # One of the line with the default value, one of the line with the product.
    assert len(found) == 2
    for code in found:
        ast.parse(code)
        assert "def double(*, x: int | float = " in code


def test_equivalent_mutants_are_of_present_code() -> None:
    for (module, line), reason in EQUIVALENT.items():
        assert module in modules()
        assert line not in files()[module].read_text()
        assert reason


def test_tests_run_on_the_changed_code() -> None:
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("True 0 None", "1 None", "0 True None"),
        *("False", "True", "''"),
        *("True", "True", "True"),
    ]


def test_an_exception_that_cosmic_ray_cannot_replace_is_passed_over() -> None:
    text = "try:\n    f()\nexcept (OSError, a.Error):\n    pass\n"
    found = [sample._mutated(text, "core/ExceptionReplacer", i) for i in range(2)]
    assert None in found
    assert "except CosmicRay" in str(
        sample._mutated("try:\n    f()\nexcept OSError:\n    pass\n", "core/ExceptionReplacer", 0)
    )
