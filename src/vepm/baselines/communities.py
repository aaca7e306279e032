"""Community detection to compare with: Louvain, Leiden, label propagation and BigCLAM."""

from collections.abc import Callable

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from vepm.errors import InputError
from vepm.evaluation.communities import as_table

Bools = NDArray[np.bool_]
Edges = NDArray[np.int64]

STEPS = 200
STEP_SIZES = 0.3 ** np.arange(8)
MOST_AFFILIATION = 1000.0
TINY = 1e-8


def louvain(edges: Edges, num_nodes: int, num_communities: int, seed: int = 0) -> Bools:
    """Partition of highest modularity by Louvain's method; it finds the number on its own."""
    found = nx.community.louvain_communities(_networkx(edges, num_nodes), seed=seed)
    return as_table([sorted(nodes) for nodes in found], num_nodes)


def label_propagation(edges: Edges, num_nodes: int, num_communities: int, seed: int = 0) -> Bools:
    """Partition by asynchronous label propagation; it finds the number on its own."""
    graph = _networkx(edges, num_nodes)
    found = nx.community.asyn_lpa_communities(graph, seed=seed)
    return as_table([sorted(nodes) for nodes in found], num_nodes)


def leiden(edges: Edges, num_nodes: int, num_communities: int, seed: int = 0) -> Bools:
    """Partition of highest modularity by Leiden's method; it finds the number on its own."""
    require_leiden()
    import igraph
    import leidenalg

    once = edges[:, edges[0] < edges[1]]
    graph = igraph.Graph(n=num_nodes, edges=once.T.tolist())
    found = leidenalg.find_partition(graph, leidenalg.ModularityVertexPartition, seed=seed)
    return as_table(list(found), num_nodes)


def require_leiden() -> None:
    """Refuse Leiden's method where the libraries behind it are not installed."""
    try:
        import igraph  # noqa: F401
        import leidenalg  # noqa: F401
    except ImportError:
        raise InputError(
            "baseline 'leiden' needs leidenalg and igraph: pip install 'vepm[leiden]'"
        ) from None


def bigclam(edges: Edges, num_nodes: int, num_communities: int, seed: int = 0) -> Bools:
    r"""Overlapping communities by BigCLAM (Yang and Leskovec, 2013).

    Maximises the likelihood of :math:`P(A_{ij} = 1) = 1 - \exp(-f_i^\top f_j)` over non-negative
    affiliations, by projected gradient steps of the best of several sizes. They start from the
    neighbourhoods of lowest conductance. A node belongs where its affiliation is at least
    :math:`\sqrt{-\log(1 - \varepsilon)}`, with :math:`\varepsilon` the density of the graph.
    """
    matrix = sp.csr_array((np.ones(edges.shape[1]), tuple(edges)), shape=(num_nodes, num_nodes))
    f = _seeded_affiliations(matrix, num_communities, seed)
    for _ in range(STEPS):
        rest = f.sum(0)
        rate = np.clip((f[edges[0]] * f[edges[1]]).sum(1), TINY, None)
        # Edges pull by 1 / (1 - exp(-r)), all other pairs push by one.
        pull = sp.csr_array((-1 / np.expm1(-rate), tuple(edges)), shape=matrix.shape)
        gradient = pull @ f - (rest - f)
        steps = [np.clip(f + s * gradient / num_nodes, 0, MOST_AFFILIATION) for s in STEP_SIZES]
        values = [_log_likelihood(step, edges) for step in steps]
        best = int(np.argmax(values))
        if values[best] <= _log_likelihood(f, edges):
            break
        f = steps[best]
    density = edges.shape[1] / max(num_nodes * (num_nodes - 1), 1)
    return np.asarray(f >= np.sqrt(-np.log1p(-min(density, 1 - TINY))), dtype=bool)


def _log_likelihood(f: NDArray[np.float64], edges: Edges) -> float:
    rate = np.clip((f[edges[0]] * f[edges[1]]).sum(1), TINY, None)
    pairs = (np.square(f.sum(0)).sum() - np.square(f).sum()) / 2
    return float(((np.log(-np.expm1(-rate)) + rate).sum() / 2) - pairs)


def _seeded_affiliations(
    matrix: sp.csr_array, num_communities: int, seed: int
) -> NDArray[np.float64]:
    """One for the members of the neighbourhoods of locally lowest conductance, noise elsewhere."""
    num_nodes = matrix.shape[0]
    random = np.random.default_rng(seed)
    near = (matrix + sp.eye_array(num_nodes, format="csr")).tocsr()
    near.data[:] = 1
    degree = np.asarray(matrix.sum(1)).ravel()
    volume = near @ degree
    inside = np.asarray((near @ matrix).multiply(near).sum(1)).ravel()
    smaller = np.maximum(np.minimum(volume, degree.sum() - volume), 1)
    conductance = np.where(degree > 0, (volume - inside) / smaller, np.inf)
    f = 0.1 * random.random((num_nodes, num_communities))
    covered = np.zeros(num_nodes, dtype=bool)
    chosen = 0
    for node in np.argsort(conductance, kind="stable"):
        if chosen == num_communities:
            break
        if not covered[node]:
            group = near.indices[near.indptr[node] : near.indptr[node + 1]]
            covered[group] = True
            f[group, chosen] = 1
            chosen += 1
    return f


def _networkx(edges: Edges, num_nodes: int) -> "nx.Graph[int]":
    graph: nx.Graph[int] = nx.empty_graph(num_nodes)
    graph.add_edges_from(edges[:, edges[0] < edges[1]].T.tolist())
    return graph


DETECTORS: dict[str, Callable[[Edges, int, int, int], Bools]] = {
    "louvain": louvain,
    "leiden": leiden,
    "label-propagation": label_propagation,
    "bigclam": bigclam,
}
"""By name, from edges [2, E] in both directions, the numbers of nodes and communities, a seed."""
