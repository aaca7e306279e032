"""Change the code a little, again and again: tests that notice nothing are too weak.

Cosmic Ray makes the mutants; each is tested in a process split off from one that has already
loaded all else. Run it with ``python -m tools.mutants``.
"""

import argparse
import ast
import importlib.abc
import importlib.util
import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import ModuleSpec
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parents[1]
TESTS = {
    "vepm.nn.distributions": ("tests/nn/test_distributions.py", "tests/nn/test_model.py"),
    "vepm.nn.partitioner": (
        "tests/nn/test_partitioner.py",
        "tests/nn/test_memberships.py",
        "tests/nn/test_symmetry.py",
    ),
    "vepm.objective": ("tests/test_objectives.py", "tests/large/test_unbiased.py"),
}
# They swap variables that their user names; Cosmic Ray leaves them out as well unless told.
NEED_ARGUMENTS = {"core/VariableReplacer", "core/VariableInserter"}
LONGEST_SECONDS = 120.0
WANTED = 0.85


class Mutant(NamedTuple):
    module: str
    operator: str
    occurrence: int
    line: int
    code: str


def source_of(module: str) -> Path:
    return HERE / "src" / f"{module.replace('.', '/')}.py"


def mutants_of(module: str) -> Iterator[Mutant]:
    """Every mutant of Cosmic Ray's own operators whose code differs in what it does.

    Those that only touch annotations or docstrings are left out: nothing runs them.
    """
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    original = source_of(module).read_text()
    plain = _running_code(original)
    for name in sorted(set(operator_names()) - NEED_ARGUMENTS):
        for occurrence in range(10_000):
            changed = mutate_code(original, get_operator(name)(), occurrence)
            if changed is None:
                break
            if _running_code(changed) != plain:
                yield Mutant(
                    module, name, occurrence, _first_difference(original, changed), changed
                )


class _Bare(ast.NodeTransformer):
    """Leaves out what does nothing at run time."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)


def _running_code(text: str) -> str:
    try:
        return ast.dump(_Bare().visit(ast.parse(text)))
    except SyntaxError:
        return text


def _first_difference(original: str, changed: str) -> int:
    pairs = zip(original.splitlines(), changed.splitlines(), strict=False)
    return next((i for i, (a, b) in enumerate(pairs, 1) if a != b), 0)


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from other code than its file holds."""

    def __init__(self, module: str, code: str) -> None:
        self.module, self.code = module, code

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        return importlib.util.spec_from_file_location(name, source_of(name), loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.code, str(source_of(self.module)), "exec"), module.__dict__)


def preload() -> None:
    """Load what takes long to load and is never changed."""
    # As the tests' own configuration does, before Triton is first imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    import hypothesis
    import matplotlib.figure
    import networkx
    import optuna
    import pytest
    import safetensors.torch
    import sklearn.model_selection
    import torch_geometric.data

    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    # That a test fails is enough; the smallest example of it would take longer than all else.
    fixed = hypothesis.settings(derandomize=True, database=None, deadline=None)
    hypothesis.settings.register_profile("mutants", fixed, phases=phases)
    os.environ["VEPM_TEST_PROFILE"] = "mutants"
    del hypothesis, matplotlib, networkx, optuna, pytest, safetensors, sklearn, torch_geometric
    assert "vepm" not in sys.modules


def is_noticed(module: str, code: str) -> bool:
    """Whether a test fails, or hangs, when a module has this code."""
    pid = os.fork()
    if pid == 0:
        os._exit(_test(module, code))
    end = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def _test(module: str, code: str) -> int:
    import pytest

    sys.meta_path.insert(0, _Changed(module, code))
    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--tb=no"]
    # A process of its own would load the code as it is.
    words += ["-k", "not importing_the_package"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return int(pytest.main([*words, *(str(HERE / path) for path in TESTS[module])]))
    except BaseException:
        return 1


def judge(mutants: Sequence[Mutant], told: bool = True) -> dict[str, Any]:
    """How many of the mutants the tests notice, and which they do not."""
    survivors = []
    for number, mutant in enumerate(mutants, 1):
        if not is_noticed(mutant.module, mutant.code):
            line = mutant.code.splitlines()[mutant.line - 1].strip()
            survivors.append({**mutant._asdict(), "code": line})
            if told:
                print(mutant.module, mutant.line, line, file=sys.stderr, flush=True)
        if told and number % 20 == 0:
            print(f"{number} of {len(mutants)}", file=sys.stderr, flush=True)
    killed = len(mutants) - len(survivors)
    return {"mutants": len(mutants), "killed": killed, "survivors": survivors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="so many of each module, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=TESTS, help="one module")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    preload()
    by_module: dict[str, Any] = {}
    for module in [chosen.only] if chosen.only else TESTS:
        assert not is_noticed(module, source_of(module).read_text()), "tests fail as it is"
        mutants = list(mutants_of(module))
        drawn = mutants
        if chosen.sample is not None and chosen.sample < len(mutants):
            drawn = Random(chosen.seed).sample(mutants, chosen.sample)
        by_module[module] = {"possible": len(mutants), **judge(drawn)}
    total, killed = (sum(m[name] for m in by_module.values()) for name in ("mutants", "killed"))
    from tools.record import keep

    found = {"share_killed": killed / total, "killed": killed, "mutants": total}
    found |= {"sample_per_module": chosen.sample, "seed": chosen.seed, "modules": by_module}
    keep(chosen.output, "mutants of Cosmic Ray that the tests notice", found)
    if killed < WANTED * total:
        raise SystemExit(f"{killed} of {total} mutants were noticed; at least {WANTED:.0%} should")


if __name__ == "__main__":
    main()
