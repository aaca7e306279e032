from pathlib import Path

import pytest

from vepm.report import write_report

from .writing import write_graph_run, write_node_run, write_unsupervised_run

HOSTILE = "</script><script>window.hacked=1</script>"


@pytest.fixture(scope="session")
def node_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "node"
    names = [f"paper {n}" for n in range(90)]
    names[3] = HOSTILE
    write_node_run(folder, node_names=names, class_names=["red", "$x_{<b>", "_blue"])
    write_report(folder)
    return folder


@pytest.fixture(scope="session")
def graph_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_graph_run(tmp_path_factory.mktemp("runs") / "graph")
    write_report(folder)
    return folder


@pytest.fixture(scope="session")
def unsupervised_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_unsupervised_run(tmp_path_factory.mktemp("runs") / "unsupervised")
    write_report(folder)
    return folder
