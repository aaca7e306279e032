"""Community detection to compare with."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.memory import PeakMemory
from vepm.baselines.communities import DETECTORS, bigclam, nocd, require
from vepm.data import planted_graph
from vepm.errors import InputError
from vepm.evaluation.communities import average_f1, modularity, overlapping_nmi
from vepm.training import sources

GRAPH = planted_graph(200, 3, overlap=0.02, average_degree=14, seed=3).graphs[0]
EDGES = GRAPH.edge_index.numpy()
TRUTH = np.eye(3, dtype=bool)[GRAPH.y.numpy()]


@pytest.mark.parametrize("name", ["louvain", "label-propagation", "bigclam", "nocd", "leiden"])
def test_planted_communities_are_found(name: str) -> None:
    if name == "leiden":
        pytest.importorskip("leidenalg")
    found = DETECTORS[name](EDGES, 200, 3, 0)
    # BigCLAM leaves nodes of few links in no community.
    assert overlapping_nmi(found, TRUTH) > (0.3 if name == "bigclam" else 0.6)
    again = DETECTORS[name](EDGES, 200, 3, 0)
    first, second = (sp.csr_array(table).toarray() for table in (found, again))
    assert np.array_equal(first, second)


def test_bigclam_finds_nodes_in_two_communities() -> None:
    """Two cliques that share two nodes."""
    pairs = [(i, j) for group in (range(6), range(4, 10)) for i in group for j in group if i != j]
    edges = np.unique(np.array(pairs).T, axis=1)
    found = bigclam(edges, 10, 2)
    truth = np.array([[i < 6, i >= 4] for i in range(10)])
    assert average_f1(found, truth) > 0.9
    assert found[4:6].all()


@pytest.mark.parametrize("seed", range(3))
def test_nocd_finds_nodes_in_two_communities(seed: int) -> None:
    """Two cliques of 30 that share ten nodes; on cliques of six it finds one of them twice."""
    pairs = [(i, j) for group in (range(30), range(20, 50)) for i in group for j in group if i != j]
    edges = np.unique(np.array(pairs).T, axis=1)
    found = nocd(edges, 50, 2, seed)
    truth = np.array([[i < 30, i >= 20] for i in range(50)])
    assert average_f1(found, truth) > 0.9
    assert found[20:30].all()


def test_leiden_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "leidenalg", None)
    with pytest.raises(InputError, match=r"pip install 'vepm\[leiden\]'"):
        DETECTORS["leiden"](EDGES, 200, 3, 0)


def test_nocd_is_refused_where_it_would_not_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "meminfo").write_text("MemAvailable: 2097152 kB\n")
    monkeypatch.setattr(sources, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(sources, "CGROUPS", ())
    require("nocd", 300_000, 400_000)
    require("louvain", 400_000, 1_000_000)
    with pytest.raises(InputError) as refused:
        require("nocd", 400_000, 1_000_000)
    assert str(refused.value) == (
        "baseline 'nocd' needs about 3.0 GiB for 400,000 nodes and 500,000 edges, and 2.0 GiB are "
        "free; leave it out"
    )


@pytest.mark.parametrize("name", ["louvain", "label-propagation", "nocd"])
def test_no_table_of_all_pairs_of_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of 30,000 separate pairs, each a community; all pairs of nodes take 3.6e9 bytes."""
    monkeypatch.setattr("vepm.baselines.communities.EPOCHS", 1)
    once = np.arange(60_000).reshape(2, -1)
    edges = np.hstack([once, once[::-1]])
    peak = PeakMemory()
    found = DETECTORS[name](edges, 60_000, 2, 0)
    assert modularity(found, edges) > (0.99 if name != "nocd" else -1)
    assert peak.read() < 2**30
