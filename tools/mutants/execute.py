"""Runs tests in a forked process in which one module has other code than its file holds."""

import contextlib
import importlib.abc
import importlib.util
import io
import math
import os
import resource
import signal
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tools.mutants.sample import source_of

WAIT_FACTOR = 30
"""Longest time on the clock, over the limit of processor time."""


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


class Outcome(NamedTuple):
    passed: bool
    seconds: float
    """Processor time, which other work on the machine does not change."""


def run_tests(module: str, code: str, tests: Sequence[Path], limit: float) -> Outcome:
    """Whether tests pass with other code in a module, within so many seconds of processor time."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit) + 1))
        # What waits for ever uses no processor time.
        signal.alarm(math.ceil(WAIT_FACTOR * limit))
        os._exit(_test(module, code, tests))
    _, status, used = os.wait4(pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return Outcome(status == 0, used.ru_utime + used.ru_stime)


def _test(module: str, code: str, tests: Sequence[Path]) -> int:
    import pytest

    sys.meta_path.insert(0, _Changed(module, code))
    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--tb=no"]
    # A process of its own would load the code as it is.
    words += ["-k", "not importing_the_package"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    silent = io.StringIO()
    try:
        with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
            return int(pytest.main([*words, *map(str, tests)]))
    except BaseException:
        return 1
