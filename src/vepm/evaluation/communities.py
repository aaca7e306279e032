"""How well communities that may overlap match known ones, and how well they fit the edges.

Communities, ``found`` [N, K] and ``truth`` [N, L], are tables of zeros and ones: who is a member
of what. An ``edge_index`` [2, E] has both directions.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from vepm.data import Dataset
from vepm.data.tables import read_table, read_text
from vepm.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.integer]

MOST_EXACT = 5_000
"""Nodes up to which the omega index counts every pair; beyond, it draws pairs."""
PAIRS = 5_000_000
_BETWEEN = re.compile(r"[\s,;]+")


def overlapping_nmi(found: ArrayLike, truth: ArrayLike) -> float:
    r"""Normalised mutual information of two covers (McDaid, Greene and Hurley, 2011).

    .. math:: \frac{I(X : Y)}{\max(H(X), H(Y))}, \quad
              I(X : Y) = \tfrac12 \big( H(X) - H(X | Y) + H(Y) - H(Y | X) \big)

    One for equal covers, about zero for unrelated ones.

    Example:
        >>> overlapping_nmi([[1, 0], [1, 1], [0, 1]], [[0, 1], [1, 1], [1, 0]])
        1.0
    """
    x, y = _tables(found, truth)
    if not x.size or not y.size:
        return 0.0
    h_x, h_y = _entropy(x), _entropy(y)
    most = max(h_x.sum(), h_y.sum())
    if most == 0:
        return float(x.shape == y.shape and bool((x.all(0) == y.all(0)).all()))
    given_y, given_x = _conditional(x, y, h_x), _conditional(y, x, h_y)
    information = (h_x.sum() - given_y.sum() + h_y.sum() - given_x.sum()) / 2
    return float(information / most)


def omega_index(found: ArrayLike, truth: ArrayLike, seed: int = 0) -> float:
    """How far two covers agree on the number of communities that two nodes share.

    The agreement is corrected for chance (Collins and Dent, 1988). For partitions it is the
    adjusted Rand index. Above 5,000 nodes it is estimated from five million random pairs, drawn
    by the seed.

    Example:
        >>> omega_index([[1, 0], [1, 1], [0, 1]], [[0, 1], [1, 1], [1, 0]])
        1.0
    """
    x, y = (table.astype(np.int32) for table in _tables(found, truth))
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


def average_f1(found: ArrayLike, truth: ArrayLike) -> float:
    """F1 of each community with its best match, averaged over both covers (Yang and Leskovec).

    Example:
        >>> average_f1([[1], [1], [0]], [[1], [1], [1]])
        0.8
    """
    x, y = _tables(found, truth)
    both = x.T.astype(np.float64) @ y
    if not both.size:
        return 0.0
    scores = 2 * both / (x.sum(0)[:, None] + y.sum(0))
    return float((scores.max(0).mean() + scores.max(1).mean()) / 2)


def modularity(found: ArrayLike, edge_index: ArrayLike) -> float:
    r"""Modularity, extended to communities that overlap (Shen et al., 2009).

    .. math:: \frac{1}{2M} \sum_k \sum_{i, j \in k} \frac{1}{O_i O_j}
              \Big( A_{ij} - \frac{d_i d_j}{2M} \Big)

    with :math:`O_i` the number of communities of node i. For a partition it is Newman's.

    Example:
        >>> modularity([[1, 0], [1, 0], [0, 1], [0, 1]], [[0, 1, 2, 3], [1, 0, 3, 2]])
        0.5
    """
    member = np.asarray(found, dtype=bool)
    source, target = np.asarray(edge_index)
    if not source.size:
        return 0.0
    belongs = member / np.maximum(member.sum(1, keepdims=True), 1)
    degree = np.bincount(source, minlength=len(member))
    inside = 0.0
    for start in range(0, source.size, 2**20):
        part = slice(start, start + 2**20)
        inside += float((belongs[source[part]] * belongs[target[part]]).sum())
    expected = np.square(degree @ belongs).sum() / source.size
    return float((inside - expected) / source.size)


def compare(found: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """All measures against known communities; a node may be in none of these."""
    return {
        "overlapping_nmi": overlapping_nmi(found, truth),
        "omega": omega_index(found, truth),
        "f1": average_f1(found, truth),
    }


def as_table(communities: Iterable[Iterable[int]], num_nodes: int) -> Bools:
    """Sets of node indices as a table [N, K]."""
    sets = [list(nodes) for nodes in communities]
    member = np.zeros((num_nodes, len(sets)), dtype=bool)
    for k, nodes in enumerate(sets):
        member[nodes, k] = True
    return member


def known_communities(dataset: Dataset) -> Bools | None:
    """Communities that come with a graph [N, K]: its memberships, or else its labels.

    Where memberships have strengths, those of at least a fifth of a node's strongest count.
    """
    graph = dataset.graphs[0]
    if "memberships" in graph:
        strength = graph.memberships.numpy()
        return np.asarray((strength > 0) & (strength >= strength.max(1, keepdims=True) / 5))
    if dataset.num_classes == 0:
        return None
    return np.asarray(dataset.labels.numpy()[:, None] == np.arange(dataset.num_classes))


def read_cover(path: Path, names: Sequence[str]) -> Bools:
    """Known communities as a table [N, K], from a file.

    A CSV with the columns ``id`` and ``community`` has a row for each membership. Any other text
    has a community on each line: the ids of its members, separated by blanks or commas. ``names``
    are the ids of the nodes.

    Raises:
        InputError: if the file cannot be read, or names a node that the graph does not have.
    """
    place = {name: i for i, name in enumerate(names)}
    groups: dict[str, list[int]] = {}
    for line, group, name in _memberships(path):
        if name not in place:
            raise InputError(f"{path}, line {line}: the graph has no node '{name}'")
        groups.setdefault(group, []).append(place[name])
    if not groups:
        raise InputError(f"{path}: names no node; give the members of a community on each line")
    return as_table(groups.values(), len(names))


def _memberships(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, community and node of each membership in a file."""
    lines = read_text(path).splitlines()
    if lines and {"id", "community"} <= set(_BETWEEN.split(lines[0].strip())):
        table = read_table(path, ("id", "community"))
        columns = table.columns["community"], table.columns["id"]
        yield from zip(table.lines, *columns, strict=True)
        return
    for number, line in enumerate(lines, start=1):
        yield from ((number, str(number), name) for name in _BETWEEN.split(line.strip()) if name)


def _tables(found: ArrayLike, truth: ArrayLike) -> tuple[Bools, Bools]:
    """Both covers, without empty communities."""
    x, y = (np.asarray(table, dtype=bool) for table in (found, truth))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise ValueError(f"covers must be [N, K] and [N, L], got {x.shape} and {y.shape}")
    return x[:, x.any(0)], y[:, y.any(0)]


def _entropy(member: Bools) -> Floats:
    """Entropy of each community's membership [K]."""
    share = member.mean(0)
    found: Floats = -xlogy(share, share) - xlogy(1 - share, 1 - share)
    return found


def _conditional(x: Bools, y: Bools, h_x: Floats) -> Floats:
    """Entropy of each community of x given the one of y that tells most of it [K]."""
    nodes, both = len(x), x.T.astype(np.float64) @ y
    of_x, of_y = x.sum(0)[:, None], y.sum(0)
    # Share of the nodes in both, in one alone, in neither.
    shares = np.stack([both, of_x - both, of_y - both, nodes - of_x - of_y + both]) / nodes
    h = -xlogy(shares, shares)
    given = h.sum(0) - _entropy(y)
    # A community tells nothing by being the complement of another.
    useful = h[0] + h[3] >= h[1] + h[2]
    found: Floats = np.where(useful, given, h_x[:, None]).min(1)
    return np.minimum(found, h_x)


def _shared_counts(x: Ints, y: Ints, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Number of communities that pairs of nodes share in each cover, in chunks."""
    nodes = len(x)
    if nodes <= MOST_EXACT:
        yield from ((x[i + 1 :] @ x[i], y[i + 1 :] @ y[i]) for i in range(nodes))
        return
    random = np.random.default_rng(seed)
    for _ in range(PAIRS // 2**18):
        i = random.integers(nodes, size=2**18)
        j = (i + random.integers(1, nodes, size=2**18)) % nodes
        yield (x[i] * x[j]).sum(1), (y[i] * y[j]).sum(1)
