"""Runs tests in a forked process in which one module has other code than its file holds."""

import importlib.abc
import importlib.util
import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.mutants.sample import source_of


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from other code than its file holds."""

    def __init__(self, module: str, code: str) -> None:
        self.module, self.code = module, code

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        file = source_of(name)
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            name, file, loader=self, submodule_search_locations=inside
        )

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
    import torch_geometric.nn
    import typer

    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    # That a test fails is enough; finding its smallest example would take longer than all else.
    fixed = hypothesis.settings(derandomize=True, database=None, deadline=None)
    hypothesis.settings.register_profile("mutants", fixed, phases=phases)
    os.environ["VEPM_TEST_PROFILE"] = "mutants"
    del hypothesis, matplotlib, networkx, optuna, pytest, safetensors, sklearn, torch_geometric
    del typer
    assert "vepm" not in sys.modules


def run_tests(module: str, code: str, tests: Sequence[Path], limit: float) -> str:
    """``passed``, ``failed`` or ``too long``, with other code in a module."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os._exit(_test(module, code, tests))
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return "failed" if status else "passed"
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "too long"


def _test(module: str, code: str, tests: Sequence[Path]) -> int:
    import pytest

    sys.meta_path.insert(0, _Changed(module, code))
    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--tb=no"]
    # A process of its own would load the code as it is.
    words += ["-k", "not importing_the_package"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return int(pytest.main([*words, *map(str, tests)]))
    except BaseException:
        return 1
