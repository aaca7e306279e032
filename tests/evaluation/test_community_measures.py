"""Measures of covers, against loops and the libraries that have them for partitions."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from benchmarks.memory import PeakMemory
from vepm.data import as_dataset
from vepm.evaluation import communities
from vepm.evaluation.communities import (
    as_table,
    average_f1,
    compare,
    known_communities,
    modularity,
    omega_index,
    overlapping_nmi,
    read_cover,
)

Bools = NDArray[np.bool_]


def cover(seed: int, nodes: int = 30, groups: int = 4, share: float = 0.4) -> Bools:
    return np.random.default_rng(seed).random((nodes, groups)) < share


def partition(seed: int, nodes: int = 40, groups: int = 3) -> Bools:
    drawn = np.random.default_rng(seed).integers(groups, size=nodes)
    return np.eye(groups, dtype=bool)[drawn]


def h(count: float, total: int) -> float:
    p = count / total
    return -p * math.log(p) if p > 0 else 0.0


def conditional(x: Bools, y: Bools) -> float:
    """H(x | Y): the least conditional entropy that is allowed, by the paper's formulas."""
    n = len(x)
    own = h(x.sum(), n) + h(n - x.sum(), n)
    found = [own]
    for other in y.T:
        d, c = int((x & other).sum()), int((x & ~other).sum())
        b, a = int((~x & other).sum()), int((~x & ~other).sum())
        if h(a, n) + h(d, n) >= h(b, n) + h(c, n):
            joint = h(a, n) + h(b, n) + h(c, n) + h(d, n)
            found.append(joint - h(b + d, n) - h(a + c, n))
    return min(found)


@pytest.mark.parametrize("seed", range(5))
def test_overlapping_nmi_equals_the_loops(seed: int) -> None:
    x, y = cover(seed), cover(seed + 10, groups=3)
    x[:8, 0] = y[:8, 0]
    entropies = [sum(h(c.sum(), 30) + h(30 - c.sum(), 30) for c in t.T) for t in (x, y)]
    x_given_y = sum(conditional(column, y) for column in x.T)
    y_given_x = sum(conditional(column, x) for column in y.T)
    shared = (entropies[0] - x_given_y + entropies[1] - y_given_x) / 2
    assert overlapping_nmi(x, y) == pytest.approx(shared / max(entropies), abs=1e-12)


def test_equal_covers_agree_whatever_the_order_and_unrelated_ones_do_not() -> None:
    x = cover(1)
    empty = np.zeros((30, 1), dtype=bool)
    for measure in (overlapping_nmi, omega_index, average_f1):
        assert measure(np.hstack([x, empty]), x[:, ::-1]) == pytest.approx(1)
        assert measure(partition(0, 400), partition(1, 400)) < (
            0.4 if measure is average_f1 else 0.02
        )
    everyone = np.ones((5, 1), dtype=bool)
    assert overlapping_nmi(everyone, everyone) == 1
    assert overlapping_nmi(empty, x) == average_f1(empty, x) == 0


@pytest.mark.parametrize("seed", range(3))
def test_omega_of_partitions_is_the_adjusted_rand_index(seed: int) -> None:
    x, y = partition(seed), partition(seed + 5, groups=4)
    y[:20, :3] = x[:20]
    y[:20, 3] = False
    expected = adjusted_rand_score(x.argmax(1), y.argmax(1))
    assert omega_index(x, y) == pytest.approx(expected)


def test_omega_of_covers_equals_the_loop() -> None:
    x, y = cover(3, 12), cover(4, 12)
    pairs = list(itertools.combinations(range(12), 2))
    counts = [[int((t[i] & t[j]).sum()) for i, j in pairs] for t in (x, y)]
    observed = np.mean([a == b for a, b in zip(*counts, strict=True)])
    expected = sum(
        np.mean([a == k for a in counts[0]]) * np.mean([b == k for b in counts[1]])
        for k in range(5)
    )
    assert omega_index(x, y) == pytest.approx((observed - expected) / (1 - expected))


@pytest.mark.parametrize("measure", [overlapping_nmi, omega_index, average_f1])
def test_covers_of_other_shapes_are_refused(measure: Callable[[Any, Any], float]) -> None:
    table = np.ones((4, 2))
    for other in (np.ones((5, 2)), np.ones(4)):
        with pytest.raises(ValueError, match=r"covers must be \[N, K\] and \[N, L\]"):
            measure(table, other)
        with pytest.raises(ValueError, match=r"covers must be \[N, K\] and \[N, L\]"):
            measure(other, table)


def test_omega_of_many_nodes_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = cover(5, 300), cover(6, 300)
    y[:200] = x[:200]
    exact = omega_index(x, y)
    monkeypatch.setattr(communities, "MOST_EXACT", 299)
    monkeypatch.setattr(communities, "PAIRS", 2**18)
    assert omega_index(x, y) == pytest.approx(exact, abs=0.01)
    assert omega_index(x, y, seed=1) != omega_index(x, y, seed=2)


def test_covers_of_everybody_agree_if_they_are_as_many() -> None:
    one, two = np.ones((5, 1)), np.ones((5, 2))
    assert overlapping_nmi(two, two) == overlapping_nmi(one, one) == 1
    assert overlapping_nmi(one, two) == overlapping_nmi(two, one) == 0


@pytest.mark.parametrize(("nodes", "drawn"), [(5000, False), (5001, True)])
def test_pairs_of_more_than_5000_nodes_are_drawn(nodes: int, drawn: bool) -> None:
    nobody = sp.csr_array((nodes, 1), dtype=np.int64)
    counts, _ = next(communities._shared_counts(nobody, nobody, 0))
    assert (len(counts) == 2**18) == drawn


def test_average_f1_by_hand() -> None:
    found = as_table([[0, 1, 2], [3]], 5)
    truth = as_table([[0, 1], [3, 4]], 5)
    # Best matches: 4/5 and 2/3, both ways.
    assert average_f1(found, truth) == pytest.approx((4 / 5 + 2 / 3) / 2)


def test_modularity_of_a_partition_is_newman_s() -> None:
    club = nx.karate_club_graph()
    once = np.array(club.edges).T
    edges = np.hstack([once, once[::-1]])
    groups = [set(nodes) for nodes in nx.community.greedy_modularity_communities(club)]
    expected = nx.community.modularity(club, groups, weight=None)
    assert modularity(as_table(groups, 34), edges) == pytest.approx(expected)
    assert modularity(np.ones((34, 1)), edges) == pytest.approx(0)
    # Two copies of one community share its nodes between them.
    table = as_table(groups, 34)
    assert modularity(sp.hstack([table, table], "csr"), edges) == pytest.approx(expected / 2)


def test_covers_of_different_graphs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(30, 4\) and \(12, 4\)"):
        compare(cover(0), cover(0, 12))
    assert compare(cover(0), cover(0)) == {"overlapping_nmi": 1, "omega": 1, "f1": 1}


def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = cover(7), cover(8, groups=9)
    whole = compare(x, y)
    for pairs in (1, 20, 70):
        monkeypatch.setattr(communities, "BLOCK", pairs)
        assert compare(x, y) == compare(sp.csr_array(x), y) == whole


def test_as_many_communities_as_nodes_fit_in_memory(tmp_path: Path) -> None:
    """A table of all pairs of the nodes of these small files would take gigabytes."""
    names = [str(i) for i in range(60_000)]
    (tmp_path / "truth.txt").write_text("\n".join(names))
    once = np.arange(60_000).reshape(2, -1)
    edges = np.hstack([once, once[::-1]])
    peak = PeakMemory()
    found = read_cover(tmp_path / "truth.txt", names)
    assert (*found.shape, found.nnz) == (60_000, 60_000, 60_000)
    assert modularity(found, edges) == pytest.approx(-1 / 60_000)
    assert average_f1(found, found) == omega_index(found, found) == 1
    labelled = as_dataset((np.ones((60_000, 1)), sp.coo_array((60_000, 60_000)), np.arange(60_000)))
    known = known_communities(labelled)
    assert known is not None
    assert known.nnz == 60_000
    assert peak.read() < 2**30
