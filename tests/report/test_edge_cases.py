"""Runs at the edge of what a report can show."""

from pathlib import Path

import numpy as np
import pytest

from vepm.report import write_report

from .reading import Page
from .writing import Array, base_metrics, write_files


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
