"""Pairs of nodes: edges held out, non-edges drawn, candidates, and the evidence of a link."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import APPNP
from torch_geometric.utils import to_scipy_sparse_matrix

from vepm.data.canonical import is_sparse
from vepm.errors import InputError
from vepm.estimators.inputs import plain

Pairs = NDArray[np.int64]
PAIRS_AT_ONCE = 4_000_000  # paths of length two that are followed at a time
STRONGEST = 100  # nodes of each community whose pairs are candidates, however far apart
Floats = NDArray[Any]
EVIDENCE = ("likeness", "strength", "features", "degree")
LEAST_RATE = 1e-30
AT_ONCE = 2**18
WIDTH = 256  # features of more columns are reduced to so many, which bounds memory
STEPS, TELEPORT = 10, 0.2  # of personalised PageRank: its length, and how often it returns


class EdgeSplit(NamedTuple):
    """A graph with some of its edges held out, each part with as many non-edges [2, n]."""

    graph: Data  # with the edges that train
    val: tuple[Pairs, Pairs]
    test: tuple[Pairs, Pairs]


def split_edges(graph: Data, val: float, test: float, seed: int) -> EdgeSplit:
    """Hold shares of the edges out at random to validate and to test."""
    random = np.random.default_rng(seed)
    once = each_once(graph.edge_index)
    order = random.permutation(once.shape[1])
    num_test, num_val = (int(share * order.size) for share in (test, val))
    if (test and not num_test) or (val and not num_val) or num_test + num_val >= order.size:
        raise InputError(f"{order.size} edges are too few to hold out {val + test:.0%} of them")
    parts = np.split(order, [num_test, num_test + num_val])
    held_test, held_val, kept = (once[:, np.sort(part)] for part in parts)
    others = draw_non_edges(graph, num_test + num_val, random)
    nodes, ends = int(graph.num_nodes or 0), graph.edge_index.numpy()
    trains = np.isin(ends.min(0) * nodes + ends.max(0), kept[0] * nodes + kept[1])
    return EdgeSplit(
        graph.edge_subgraph(torch.from_numpy(trains)),
        (held_val, others[:, num_test:]),
        (held_test, others[:, :num_test]),
    )


def draw_non_edges(graph: Data, count: int, random: np.random.Generator) -> Pairs:
    """Different pairs of nodes that are not joined [2, count], each as likely as any other."""
    nodes, once = int(graph.num_nodes or 0), each_once(graph.edge_index)
    taken = once[0] * nodes + once[1]
    if count > (nodes * (nodes - 1) // 2 - taken.size) // 2:
        raise InputError(f"the graph has too few pairs without an edge to draw {count} of them")
    found = np.empty(0, dtype=np.int64)
    while found.size < count:
        i, j = random.integers(nodes, size=(2, 2 * count))
        keys = np.minimum(i, j) * nodes + np.maximum(i, j)
        new = keys[(i != j) & ~np.isin(keys, taken)]
        # In the order of the draw: sorted, the first would all be of low index.
        found = np.concatenate([found, new])
        found = found[np.sort(np.unique(found, return_index=True)[1])]
    return np.stack(np.divmod(found[:count], nodes))


def adjacency(graph: Data) -> sp.csr_array:
    """The edges as a sparse matrix of ones [N, N]."""
    return sp.csr_array(to_scipy_sparse_matrix(graph.edge_index, num_nodes=graph.num_nodes))


def draw_at_distance_two(graph: Data, count: int, seed: int) -> Pairs:
    """Random pairs without an edge that have a common neighbour [2, count]."""
    ends, matrix = graph.edge_index.numpy(), adjacency(graph)
    nodes, degree = matrix.shape[0], np.diff(matrix.indptr)
    random = np.random.default_rng(seed)
    found = np.empty((2, 0), dtype=np.int64)
    while found.shape[1] < count:
        # Both ends of a path of length two, its middle drawn by the number of such paths.
        middle = random.choice(nodes, size=4 * count, p=degree**2 / np.sum(degree**2))
        pick = (matrix.indptr[middle] + random.integers(degree[middle]) for _ in range(2))
        pairs = np.sort(np.stack([matrix.indices[place] for place in pick]), axis=0)
        apart = _without_edges(pairs, ends, nodes)
        found = np.unique(np.concatenate([found, apart], axis=1), axis=1)
    return found[:, random.permutation(found.shape[1])[:count]]


def ranked(
    score: Callable[[Pairs], NDArray[Any]], pairs: tuple[Pairs, Pairs]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ones for edges and zeros for non-edges, and the scores of both."""
    parts = [score(part) for part in pairs]
    return np.repeat([1.0, 0.0], [len(part) for part in parts]), np.concatenate(parts)


def candidates(edge_index: Tensor, strength: NDArray[np.float32]) -> Iterator[Pairs]:
    """Pairs without an edge that may miss one [2, n], in chunks; a pair may come twice.

    They are the pairs at distance two, and those of the strongest nodes of each community by their
    affiliations [N, C]. All pairs would be too many for a large graph.
    """
    nodes = len(strength)
    ends = edge_index.numpy()
    matrix = sp.csr_array((np.ones(ends.shape[1], np.int8), tuple(ends)), shape=(nodes, nodes))
    degree = np.diff(matrix.indptr)
    paths = np.cumsum(matrix.astype(np.int64) @ degree)
    bounds = np.searchsorted(paths, np.arange(PAIRS_AT_ONCE, paths[-1] + 1, PAIRS_AT_ONCE))
    rows = np.unique(np.concatenate([[0], bounds, [nodes]]))
    for start, stop in itertools.pairwise(rows):
        near = (matrix[start:stop].astype(np.int32) @ matrix).tocoo()
        yield _without_edges(np.stack([near.row + start, near.col]), ends, nodes)
    strongest = np.argsort(-strength, axis=0)[:STRONGEST]
    for group in strongest.T:
        yield _without_edges(np.stack(np.meshgrid(group, group)).reshape(2, -1), ends, nodes)


def _without_edges(pairs: Pairs, edge_index: Pairs, num_nodes: int) -> Pairs:
    """Each unordered pair once, without those that are joined."""
    pairs = pairs[:, pairs[0] < pairs[1]].astype(np.int64)
    joined = np.isin(pairs[0] * num_nodes + pairs[1], edge_index[0] * num_nodes + edge_index[1])
    return pairs[:, ~joined]


def each_once(edge_index: Tensor) -> Pairs:
    """One direction of edges that are given in both."""
    return edge_index[:, edge_index[0] < edge_index[1]].numpy()


class Links(NamedTuple):
    """Pairs of nodes with the model's predictions, the most remarkable first."""

    nodes: list[tuple[Any, Any]]  # the two ends of each pair, by name
    probability: Floats  # that they are joined [P]
    share: Floats  # share of each community in their rate [P, C]; rows sum to one

    @property
    def surprise(self) -> Floats:
        """How surprising it is that they are joined: bits, the negative logarithm [P]."""
        return -np.log2(np.maximum(self.probability, LEAST_RATE))


class Nodes(NamedTuple):
    """What each node of a graph contributes to the rates of its links."""

    names: list[Any]
    edge_index: Tensor
    z: Floats  # affiliations [N, C]
    meeting: Floats  # affiliations times interactions: its factor in rates [N, C]
    surroundings: Floats  # mean features around it, rows of length one [N, F]
    degree: Floats  # logarithm of one plus its degree [N]

    def indices_of(self, pairs: Any) -> Pairs:
        """Pairs of names as indices [2, P]."""
        place = {name: i for i, name in enumerate(self.names)}
        try:
            found = [(place[plain(i)], place[plain(j)]) for i, j in pairs]
        except KeyError as error:
            raise InputError(f"the graph has no node {error.args[0]!r}") from None
        except (TypeError, ValueError):
            raise InputError("pairs must be a list of pairs of nodes") from None
        return np.array(found, dtype=np.int64).reshape(-1, 2).T

    def evidence(self, pairs: Pairs) -> Floats:
        """The values of ``EVIDENCE`` for pairs of indices [2, P], one column each [P, 4]."""
        own = np.log(np.maximum((self.meeting * self.z).sum(1), LEAST_RATE)) / 2
        found = np.empty((pairs.shape[1], len(EVIDENCE)))
        for start in range(0, pairs.shape[1], AT_ONCE):
            i, j = pairs[:, start : start + AT_ONCE]
            rate = np.einsum("pc,pc->p", self.meeting[i], self.z[j])
            strength, degree = own[i] + own[j], self.degree[i] + self.degree[j]
            likeness = np.log(np.maximum(rate, LEAST_RATE)) - strength
            cosine = np.einsum("pf,pf->p", self.surroundings[i], self.surroundings[j])
            found[start : start + AT_ONCE] = np.stack([likeness, strength, cosine, degree], axis=1)
        return found

    def log_odds(self, pairs: Pairs, calibration: dict[str, float]) -> Floats:
        """Log-odds of pairs of indices [2, P] among as many edges as non-edges."""
        weights = np.array([calibration[name] for name in EVIDENCE])
        return self.evidence(pairs) @ weights + calibration["intercept"]

    def probability(self, pairs: Pairs, calibration: dict[str, float]) -> Floats:
        """Probability of pairs of indices [2, P] among all pairs, of which few are edges."""
        return expit(self.log_odds(pairs, calibration) + calibration["log_odds"])

    def links(self, pairs: Pairs, calibration: dict[str, float]) -> Links:
        """Probability of pairs of indices [2, P], and the communities behind it."""
        (i, j), z, meeting = pairs, self.z, self.meeting
        # Both are equal, unless communities interact with each other.
        parts = meeting[i] * z[j] + z[i] * meeting[j]
        return Links(
            [(self.names[i], self.names[j]) for i, j in pairs.T.tolist()],
            self.probability(pairs, calibration),
            parts / np.maximum(parts.sum(1, keepdims=True), LEAST_RATE),
        )


def surroundings(x: Tensor, edge_index: Tensor) -> Floats:
    """Mean features around each node, by personalised PageRank; rows of length one [N, F]."""
    if is_sparse(x):
        x = x.coalesce()
        entries = x.values().numpy(), tuple(x.indices().numpy())
        table: Any = normalize(sp.csr_array(entries, shape=(x.size(0), x.size(1))))
    else:
        table = normalize(x.numpy())
    if x.size(1) > WIDTH:
        # Cosines hardly change, and what is left out is mostly noise.
        table = TruncatedSVD(WIDTH, random_state=0).fit_transform(table)
    elif is_sparse(x):
        table = table.toarray()
    centred = torch.from_numpy(table)
    centred -= centred.mean(0)
    return normalize(APPNP(STEPS, TELEPORT)(centred, edge_index).numpy())
