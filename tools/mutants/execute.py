"""Runs tests in a forked process in which one module has other code than its file holds."""

import contextlib
import gc
import importlib.abc
import importlib.util
import io
import linecache
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tools.mutants.closeness import SOURCE
from tools.mutants.sample import source_of

WAIT_FACTOR = 30
"""Longest time on the clock, over the limit of processor time."""
CHILDREN = resource.RUSAGE_CHILDREN
Wanted = Callable[[str], bool]


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
    import sklearn.decomposition
    import sklearn.linear_model
    import sklearn.model_selection
    import sklearn.neighbors
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
    # Collecting garbage would copy all of it into every process that is forked.
    gc.collect()
    gc.freeze()


class _SlowError(BaseException):
    """A test takes too long."""


class Outcome(NamedTuple):
    """Names of tests that passed, of tests cut off as slow, and of the first that failed.

    That name is empty if the tests could not even be collected.
    """

    passed: frozenset[str]
    slow: frozenset[str]
    failed: str | None


class _Watch:
    """Writes what becomes of each test, and cuts off tests that take too long."""

    def __init__(self, log: int, longest: float, most: float, wanted: Wanted) -> None:
        self.log, self.longest, self.most, self.wanted = log, longest, most, wanted
        self.started = 0.0

    def say(self, what: str, name: str) -> None:
        os.write(self.log, f"{what} {name}\n".encode())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say("failed", "")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self.wanted(item.nodeid)]
        self.started = _processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.say("started", item.nodeid)
        failed = item.session.testsfailed
        signal.setitimer(signal.ITIMER_PROF, self.longest)
        # What waits for ever uses no processor time.
        signal.setitimer(signal.ITIMER_REAL, WAIT_FACTOR * self.longest)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if item.session.testsfailed == failed:
                self.say("passed", item.nodeid)
            if _processor_seconds() - self.started > self.most:
                item.session.shouldstop = "enough"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        report: Any = yield
        if report.failed and call.excinfo:
            slow = call.excinfo.errisinstance(_SlowError)
            self.say("slow" if slow else "failed", item.nodeid)
            if not slow:
                item.session.shouldstop = "one failed"
        return report


def run_tests(
    paths: Iterable[Path],
    longest: float,
    most: float,
    wanted: Wanted = lambda name: True,
    changed: tuple[str, str] | None = None,
) -> Outcome:
    """Run the tests of files until one fails, in a process of their own.

    Args:
        paths: the files.
        longest: tests are cut off after so many seconds of processor time.
        most: no test is started after so many, not counting what loading them takes.
        wanted: which tests to run, by name.
        changed: a module, and other code to run in it than its file holds.
    """
    with tempfile.TemporaryFile() as log, _copied(changed) as source:
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            limit = math.ceil(most + 2 * longest) + 10
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
            signal.signal(signal.SIGPROF, _end_test)
            signal.signal(signal.SIGALRM, _end_test)
            search = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
            os.environ["PYTHONPATH"] = os.pathsep.join(search)
            if changed:
                sys.meta_path.insert(0, _Changed(*changed))
            os._exit(_test(paths, _Watch(log.fileno(), longest, most, wanted)))
        _, status = os.waitpid(pid, 0)
        _end_group(pid)
        log.seek(0)
        events = [line.split(" ", 1) for line in log.read().decode().splitlines()]
    last = {name: what for what, name in events}
    named = {
        what: [name for name, found in last.items() if found == what]
        for what in ("passed", "slow", "failed", "started")
    }
    # Where the process ended within a test, that test did it.
    ends = [*named["failed"], *named["started"], *([""] if status else [])]
    return Outcome(frozenset(named["passed"]), frozenset(named["slow"]), next(iter(ends), None))


@contextlib.contextmanager
def _copied(changed: tuple[str, str] | None) -> Iterator[Path]:
    """A folder with all code, perhaps changed, for processes that tests start."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(SOURCE, Path(folder, SOURCE.name))
        if changed:
            module, code = changed
            (copy / source_of(module).relative_to(SOURCE)).write_text(code, encoding="utf-8")
        yield copy


def _end_test(*_: object) -> None:
    raise _SlowError


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _processor_seconds() -> float:
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _test(paths: Iterable[Path], plugin: object) -> int:
    """Run tests; other than 0 if they could not be collected."""
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--tb=no"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    silent = io.StringIO()
    broken = (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR)
    try:
        with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
            return int(pytest.main([*words, *map(str, paths)], plugins=[plugin]) in broken)
    except BaseException:
        return 1
