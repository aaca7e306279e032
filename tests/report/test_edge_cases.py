"""Runs at the edge of what a report can show."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vepm.report import write_report

from .odd_graphs import odd_graphs
from .reading import Page
from .writing import Array, base_metrics, change, write_files, write_node_run

LEFT_OUT = re.compile(r"Not drawn: (.*)\.</p>")


def _arrays(nodes: int, communities: int, edges: Array | None = None) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    edge_index = np.zeros((2, 0), dtype=np.int64) if edges is None else edges
    return {
        "edge_index": edge_index,
        "edge_weight": np.full((edge_index.shape[1], communities), 1 / communities),
        "memberships": rng.gamma(1.0, 1.0, size=(nodes, communities)),
        "activation": np.ones(communities),
    }


@pytest.mark.parametrize(("nodes", "communities"), [(1, 1), (6, 2), (5, 30)])
def test_graph_without_edges(tmp_path: Path, nodes: int, communities: int) -> None:
    arrays = _arrays(nodes, communities)
    page = Page(write_report(write_files(tmp_path, arrays, base_metrics(arrays, "node"))))
    assert len(page.data["nodes"]["name"]) == nodes
    assert len(page.data["communities"]) == communities


def test_labels_all_unknown(tmp_path: Path) -> None:
    pair = np.array([[0, 1, 2, 2], [1, 0, 2, 2]])
    arrays = _arrays(4, 2, pair)
    arrays["y"] = np.full(4, -1)
    metrics = {"dataset": "none known", "task": "node"}
    page = Page(write_report(write_files(tmp_path, arrays, metrics)))
    assert page.data["items"]["label"] == [-1] * 4
    assert page.data["edges"]["source"] == [0], "loops are not drawn, pairs once"


def test_dead_communities(tmp_path: Path) -> None:
    arrays = _arrays(4, 2, np.array([[0, 1], [1, 0]]))
    arrays["memberships"] = np.zeros((4, 2))
    page = Page(write_report(write_files(tmp_path, arrays, base_metrics(arrays, "node"))))
    assert page.data["nodes"]["part"] == [[50, 50]] * 4
    assert "No node has this as its main community" in page.text


def test_pages_of_fifty_odd_graphs(tmp_path: Path) -> None:
    graphs = odd_graphs()
    assert len(graphs) == 50
    for name, arrays in graphs.items():
        np.savez(tmp_path / f"{name}.npz", allow_pickle=False, **arrays)
    # In a process of its own: a crash of compiled code would take the tests with it.
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "report.odd_graphs", tmp_path],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout.split()[-1:]}: {done.returncode}\n{done.stderr}"
    reasons = {name: _left_out(tmp_path / name) for name in graphs}
    assert len(reasons["complete-200"]) == len(reasons["isolated-ones"]) == 1
    assert reasons["tree"] == reasons["features-of-scale-1e-20"] == []
    few = re.compile("t-SNE needs 4 distinct points, not [123]")
    assert all(few.fullmatch(reason) for found in reasons.values() for reason in found), reasons


def _left_out(folder: Path) -> list[str]:
    """Why pictures are not on a page; those that are have their files."""
    page = folder / "report.html"
    Page(page)
    text = page.read_text(encoding="utf-8")
    assert text.count("<figcaption>") == len(list((folder / "figures").glob("*.svg"))) > 0
    return LEFT_OUT.findall(text)


def test_a_failed_picture_is_named_and_the_others_are_drawn(tmp_path: Path) -> None:
    folder = write_node_run(tmp_path, nodes=30)
    change(folder, community_embeddings=np.ones((30, 3, 4), dtype=np.float32))
    write_report(folder)
    assert _left_out(folder) == ["t-SNE needs 4 distinct points, not 1"]
    assert len(list((folder / "figures").glob("*.svg"))) == 5
