"""How well communities that may overlap match known ones, and how well they fit the edges.

Communities, ``found`` [N, K] and ``truth`` [N, L], are tables of zeros and ones, dense or sparse:
who is a member of what. An ``edge_index`` [2, E] has both directions. There may be as many
communities as nodes, so no measure holds a table of all pairs of nodes or communities.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import gen_batches

from vepm.data import Dataset
from vepm.data.tables import read_table, read_text
from vepm.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.integer]
Cover = ArrayLike | sp.csr_array

MOST_EXACT = 5_000  # nodes up to which the omega index counts every pair; beyond, it draws pairs
PAIRS = 5_000_000
BLOCK = 2**20  # pairs of nodes or communities that are compared at once
_BETWEEN = re.compile(r"[\s,;]+")


def overlapping_nmi(found: Cover, truth: Cover) -> float:
    r"""Normalised mutual information of two covers (McDaid, Greene and Hurley, 2011).

    .. math:: \frac{I(X : Y)}{\max(H(X), H(Y))}, \quad
              I(X : Y) = \tfrac12 \big( H(X) - H(X | Y) + H(Y) - H(Y | X) \big)

    One for equal covers, about zero for unrelated ones.

    Example:
        >>> overlapping_nmi([[1, 0], [1, 1], [0, 1]], [[0, 1], [1, 1], [1, 0]])
        1.0
    """
    x, y = _tables(found, truth)
    if not x.nnz or not y.nnz:
        return 0.0
    h_x, h_y = _entropy(x).sum(), _entropy(y).sum()
    if h_x == h_y == 0:
        # Every community is of all nodes.
        return float(x.shape == y.shape)
    given_y, given_x = _conditional(x, y).sum(), _conditional(y, x).sum()
    return float((h_x - given_y + h_y - given_x) / 2 / max(h_x, h_y))


def omega_index(found: Cover, truth: Cover, seed: int = 0) -> float:
    """How far two covers agree on the number of communities that two nodes share.

    Corrected for chance (Collins and Dent, 1988); for partitions it is the adjusted Rand index.
    Above 5,000 nodes it is estimated from five million random pairs, drawn by the seed.

    Example:
        >>> omega_index([[1, 0], [1, 1], [0, 1]], [[0, 1], [1, 1], [1, 0]])
        1.0
    """
    x, y = _tables(found, truth)
    # Two nodes share at most as many as a node has.
    size = 1 + max(int(table.sum(1).max(initial=0)) for table in (x, y))
    joint = np.zeros((size, size), dtype=np.int64)
    for in_x, in_y in _shared_counts(x, y, seed):
        joint += np.bincount(in_x * size + in_y, minlength=joint.size).reshape(joint.shape)
    if not (pairs := int(joint.sum())):
        return 1.0
    observed = int(joint.trace()) / pairs
    expected = int(joint.sum(1) @ joint.sum(0)) / pairs**2
    return 1.0 if expected == 1 else (observed - expected) / (1 - expected)


def average_f1(found: Cover, truth: Cover) -> float:
    """F1 of each community with its best match, averaged over both covers (Yang and Leskovec).

    Example:
        >>> average_f1([[1], [1], [0]], [[1], [1], [1]])
        0.8
    """
    x, y = _tables(found, truth)
    if not x.nnz or not y.nnz:
        return 0.0
    both = (x.T @ y).tocoo()
    scores = 2 * both.data / (x.sum(0)[both.row] + y.sum(0)[both.col])
    table = sp.coo_array((scores, (both.row, both.col)), shape=both.shape)
    best = [table.max(axis=axis).toarray().mean() for axis in (0, 1)]
    return float(sum(best) / 2)


def modularity(found: Cover, edge_index: ArrayLike) -> float:
    r"""Modularity, extended to communities that overlap (Shen et al., 2009).

    .. math:: \frac{1}{2M} \sum_k \sum_{i, j \in k} \frac{1}{O_i O_j}
              \Big( A_{ij} - \frac{d_i d_j}{2M} \Big)

    with :math:`O_i` the number of communities of node i. For a partition it is Newman's.

    Example:
        >>> modularity([[1, 0], [1, 0], [0, 1], [0, 1]], [[0, 1, 2, 3], [1, 0, 3, 2]])
        0.5
    """
    member, ends = _sparse(found), np.asarray(edge_index)
    count = ends.shape[1]
    if not count:
        return 0.0
    nodes = member.shape[0]
    belongs = sp.diags_array(1 / np.maximum(member.sum(1), 1)) @ member
    edges = sp.csr_array((np.ones(count), tuple(ends)), shape=(nodes, nodes))
    inside = float((edges @ belongs).multiply(belongs).sum())
    expected = np.square(edges.sum(1) @ belongs).sum() / count
    return float((inside - expected) / count)


def compare(found: Cover, truth: Cover) -> dict[str, float]:
    """All measures against known communities; a node may be in none of these."""
    return {
        "overlapping_nmi": overlapping_nmi(found, truth),
        "omega": omega_index(found, truth),
        "f1": average_f1(found, truth),
    }


def as_table(communities: Iterable[Iterable[int]], num_nodes: int) -> sp.csr_array:
    """Sets of node indices as a sparse table [N, K]."""
    rows = MultiLabelBinarizer(classes=range(num_nodes), sparse_output=True)
    return sp.csr_array(rows.fit_transform(list(communities)).T)


def known_communities(dataset: Dataset) -> sp.csr_array | None:
    """Communities that come with a graph [N, K]: its memberships, or else its labels.

    Where memberships have strengths, those of at least a fifth of a node's strongest count.
    """
    graph = dataset.graphs[0]
    if "memberships" in graph:
        strength = graph.memberships.numpy()
        return _sparse((strength > 0) & (strength >= strength.max(1, keepdims=True) / 5))
    if dataset.num_classes == 0:
        return None
    labels = dataset.labels.numpy()
    rows = np.flatnonzero(labels >= 0)
    shape = labels.size, dataset.num_classes
    return sp.csr_array((np.ones(rows.size, np.int64), (rows, labels[rows])), shape=shape)


def read_cover(path: Path, names: Sequence[str]) -> sp.csr_array:
    """Known communities as a sparse table [N, K], from a file; ``names`` are the nodes' ids.

    A CSV with the columns ``id`` and ``community`` has a row for each membership. Any other text
    has a community on each line: the ids of its members, separated by blanks or commas.
    """
    lines = [_BETWEEN.split(line.strip()) for line in read_text(path).splitlines()]
    if lines and {"id", "community"} <= set(lines[0]):
        table = read_table(path, ("id", "community"))
        columns = table.columns["community"], table.columns["id"]
        found = list(zip(table.lines, *columns, strict=True))
    else:
        numbered = enumerate(lines, start=1)
        found = [(n, str(n), name) for n, members in numbered for name in members if name]
    if not found:
        raise InputError(f"{path}: names no node; give the members of a community on each line")
    place = {name: i for i, name in enumerate(names)}
    groups: dict[str, list[int]] = {}
    for line, group, name in found:
        if name not in place:
            raise InputError(f"{path}, line {line}: the graph has no node '{name}'")
        groups.setdefault(group, []).append(place[name])
    return as_table(groups.values(), len(names))


def _sparse(cover: Cover) -> sp.csr_array:
    table = cover if isinstance(cover, sp.csr_array) else sp.csr_array(np.asarray(cover))
    return table.astype(bool).astype(np.int64)


def _tables(found: Cover, truth: Cover) -> tuple[sp.csr_array, sp.csr_array]:
    """Both covers, without empty communities."""
    x, y = _sparse(found), _sparse(truth)
    if (x.ndim, y.ndim) != (2, 2) or x.shape[0] != y.shape[0]:
        raise ValueError(f"covers must be [N, K] and [N, L], got {x.shape} and {y.shape}")
    return x[:, x.sum(0) > 0], y[:, y.sum(0) > 0]


def _entropy(member: sp.csr_array) -> Floats:
    """Entropy of each community's membership [K]."""
    share = member.sum(0) / member.shape[0]
    return np.asarray(-xlogy(share, share) - xlogy(1 - share, 1 - share), dtype=np.float64)


def _conditional(x: sp.csr_array, y: sp.csr_array) -> Floats:
    """Entropy of each community of x given the most informative one of y [K]."""
    nodes, others, of_y = x.shape[0], y.astype(np.float64), y.sum(0)
    h_x, h_y = _entropy(x), _entropy(y)
    found = h_x.copy()
    for rows in gen_batches(x.shape[1], max(1, BLOCK // y.shape[1])):
        part = x[:, rows]
        both, of_x = (part.T @ others).toarray(), part.sum(0)[:, None]
        # Share of the nodes in both, in one alone, in neither.
        shares = np.stack([both, of_x - both, of_y - both, nodes - of_x - of_y + both]) / nodes
        h = -xlogy(shares, shares)
        # Being the complement of another community does not count as information.
        useful = h[0] + h[3] >= h[1] + h[2]
        given = np.where(useful, h.sum(0) - h_y, h_x[rows, None]).min(1)
        found[rows] = np.minimum(given, h_x[rows])
    return found


def _shared_counts(x: sp.csr_array, y: sp.csr_array, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Number of communities that pairs of nodes share in each cover, in blocks."""
    nodes = x.shape[0]
    if nodes <= MOST_EXACT:
        for rows in gen_batches(nodes, max(1, BLOCK // nodes)):
            later = np.arange(nodes) > np.arange(nodes)[rows, None]
            yield (x[rows] @ x.T).toarray()[later], (y[rows] @ y.T).toarray()[later]
        return
    random = np.random.default_rng(seed)
    for _ in range(PAIRS // 2**18):
        i = random.integers(nodes, size=2**18)
        j = (i + random.integers(1, nodes, size=2**18)) % nodes
        yield x[i].multiply(x[j]).sum(1), y[i].multiply(y[j]).sum(1)
