"""Runs tests in a forked process in which one module has other code than its file holds."""

import contextlib
import importlib.abc
import importlib.util
import io
import json
import linecache
import math
import os
import resource
import signal
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tools.mutants.sample import source_of

WAIT_FACTOR = 30
"""Longest time on the clock, over the limit of processor time."""
CHILDREN = resource.RUSAGE_CHILDREN


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
        path = str(source_of(self.module))
        # Triton compiles what `inspect` says the source of a kernel is.
        linecache.cache[path] = len(self.code), None, self.code.splitlines(keepends=True), path
        exec(compile(self.code, path, "exec"), module.__dict__)


def preload() -> None:
    """Load what takes long to load and is never changed."""
    # As the tests' own configuration does, before Triton is first imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    import hypothesis
    import matplotlib.figure
    import networkx
    import optuna
    import safetensors.torch
    import sklearn.model_selection
    import torch_geometric.nn
    import typer

    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    # That a test fails is enough; finding its smallest example would take longer than all else.
    fixed = hypothesis.settings(derandomize=True, database=None, deadline=None)
    hypothesis.settings.register_profile("mutants", fixed, phases=phases)
    os.environ["VEPM_TEST_PROFILE"] = "mutants"
    del hypothesis, matplotlib, networkx, optuna, safetensors, sklearn, torch_geometric
    del typer
    assert "vepm" not in sys.modules


class _SlowError(BaseException):
    """A test takes too long."""


class _Timed:
    """Keeps the processor time of tests that pass, and ends those that take too long."""

    def __init__(self, longest: float) -> None:
        self.longest, self.seconds = longest, dict[str, float]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        started = _processor_seconds()
        signal.setitimer(signal.ITIMER_PROF, self.longest)
        self.seconds[item.nodeid] = 0.0
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            used = _processor_seconds() - started
            if item.nodeid in self.seconds:
                self.seconds[item.nodeid] = used
            if used > self.longest:
                self.seconds.pop(item.nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.seconds.pop(report.nodeid, None)


class _Only:
    """Runs some of the tests of a file."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.names]


def quick_tests(path: Path, longest: float) -> dict[str, float]:
    """Tests of a file that pass on unchanged code within so many seconds of processor time each.

    Returns:
        The processor time of each by its name.
    """
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)

        def end(*_: object) -> None:
            raise _SlowError

        signal.signal(signal.SIGPROF, end)
        timed = _Timed(longest)
        _test([path], timed, stop=False)
        os.write(sender, json.dumps(timed.seconds).encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        found = pipe.read()
    os.waitpid(pid, 0)
    _end_group(pid)
    return dict(json.loads(found or "{}"))


def run_tests(module: str, code: str, tests: Mapping[str, Path], limit: float) -> bool:
    """Whether tests, given by name with their files, pass with other code in a module.

    They do not if they take more than so many seconds of processor time.
    """
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit) + 1))
        # What waits for ever uses no processor time.
        signal.alarm(math.ceil(WAIT_FACTOR * limit))
        sys.meta_path.insert(0, _Changed(module, code))
        os._exit(_test(dict.fromkeys(tests.values()), _Only(tests.keys()), stop=True))
    _, status = os.waitpid(pid, 0)
    _end_group(pid)
    return status == 0


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _processor_seconds() -> float:
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _test(paths: Iterable[Path], plugin: object, stop: bool) -> int:
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--tb=no"]
    # A process of its own would load the code as it is.
    words += ["-k", "not importing_the_package"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning", *(["-x"] if stop else [])]
    silent = io.StringIO()
    try:
        with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
            return int(pytest.main([*words, *map(str, paths)], plugins=[plugin]))
    except BaseException:
        return 1
