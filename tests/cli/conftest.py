from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from cli.running import QUICK, succeed
from cli.writing import write_graphs, write_nodes


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands write below the current folder unless told otherwise."""
    monkeypatch.chdir(tmp_path)


def only_its_path(folder: Path) -> Path:
    return folder / "report.html"


@contextmanager
def without_page() -> Iterator[None]:
    """Runs without figures, which take longer than everything else in a small one."""
    with mock.patch("vepm.cli.jobs.write_report", only_its_path):
        yield


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vepm.cli.jobs.write_report", only_its_path)


@pytest.fixture(scope="session")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_nodes(tmp_path_factory.mktemp("data") / "pets")


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graphs(tmp_path_factory.mktemp("data") / "shapes")


@pytest.fixture(scope="session")
def pets_run(pets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on nodes; to be read, not changed."""
    folder = tmp_path_factory.mktemp("runs") / "pets"
    with without_page():
        succeed("train", pets, "-o", folder, *QUICK)
    return folder


@pytest.fixture(scope="session")
def shapes_run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on graphs; to be read, not changed."""
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    with without_page():
        succeed("train", shapes, "-o", folder, *QUICK)
    return folder
