"""Community detection to compare with: Louvain, Leiden, label propagation, BigCLAM and NOCD."""

from collections.abc import Callable
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, Sequential

from vepm.baselines.nodes import FeatureDropout
from vepm.errors import InputError
from vepm.evaluation.communities import Bools, as_table
from vepm.nn import Adjacency
from vepm.objective import edge_log_likelihood
from vepm.training.sources import FLOAT, GIB, available_bytes

Edges = NDArray[np.int64]

HIDDEN, DROPOUT, LEARNING_RATE, WEIGHT_DECAY = 128, 0.5, 1e-3, 1e-2
EPOCHS, EVERY, PATIENCE, THRESHOLD = 500, 25, 10, 0.5
"""As in its paper: check the loss every 25 epochs, stop after ten checks without a better one."""
STEPS, STEP_SIZES, MOST_AFFILIATION, LEAST_RATE = 200, 0.3 ** np.arange(8), 1000, 1e-8
"""BigCLAM's: steps at most, the sizes tried in each, and bounds."""


def nocd(edges: Edges, num_nodes: int, num_communities: int, seed: int = 0) -> Bools:
    """Overlapping communities by NOCD (Shchur and Günnemann, 2019), a GCN of the affiliations.

    It is trained on the balanced Bernoulli-Poisson likelihood of the edges, and reads the adjacency
    as features, as its paper does where there are none. It needs more than a few dozen nodes.
    """
    edge_index, shape = torch.from_numpy(edges), (num_nodes, num_nodes)
    # The smallest rate of an edge is that of the graph's density, as in the paper's code.
    least = density(edges.shape[1], num_nodes)
    # Rows of length one, without a table of all pairs of nodes.
    values = torch.from_numpy(1 / np.sqrt(np.bincount(edges[0])[edges[0]], dtype=np.float32))
    x = torch.sparse_coo_tensor(edge_index, values, shape, check_invariants=True).coalesce()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Sequential(
            "x, edges",
            [
                (FeatureDropout(DROPOUT), "x -> x"),
                (GCNConv(num_nodes, HIDDEN), "x, edges -> x"),
                nn.ReLU(),
                nn.BatchNorm1d(HIDDEN, affine=False),
                nn.Dropout(DROPOUT),
                (GCNConv(HIDDEN, num_communities), "x, edges -> x"),
                nn.ReLU(),
            ],
        )
        optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        best, found, waited = float("inf"), torch.zeros(num_nodes, num_communities), 0
        for epoch in range(EPOCHS):
            if epoch % EVERY == 0:
                with torch.no_grad():
                    z = model.eval()(x, edge_index)
                    loss = -float(log_likelihood(z, edge_index, least, balanced=True))
                waited += 1
                if loss < best:
                    best, found, waited = loss, z, 0
                if waited > PATIENCE:
                    break
            optimizer.zero_grad()
            z = model.train()(x, edge_index)
            (-log_likelihood(z, edge_index, least, balanced=True)).backward()
            optimizer.step()
    return np.asarray(found.numpy() > THRESHOLD)


def log_likelihood(
    z: Tensor, edges: Tensor | Adjacency, least_rate: float, *, balanced: bool = False
) -> Tensor:
    """Log-likelihood of a Bernoulli-Poisson model in which every pair has a least rate."""
    padded = torch.cat([z, z.new_full((z.size(0), 1), least_rate**0.5)], dim=1)
    return edge_log_likelihood(padded, z.new_ones(padded.size(1)), edges, balanced=balanced).sum()


def density(num_edges: int, num_nodes: int) -> float:
    """Share of pairs of nodes that are joined by edges, which are given in both directions."""
    return num_edges / max(num_nodes * (num_nodes - 1), 1)


def _by_networkx(
    find: Callable[..., Any], edges: Edges, num_nodes: int, num_communities: int, seed: int
) -> sp.csr_array:
    graph = nx.empty_graph(num_nodes)
    graph.add_edges_from(edges[:, edges[0] < edges[1]].T.tolist())
    return as_table(find(graph, seed=seed), num_nodes)


def _leiden(graph: Any, seed: int) -> Any:
    try:
        import igraph
        import leidenalg
    except ImportError:
        raise InputError(
            "baseline 'leiden' needs leidenalg and igraph: pip install 'vepm[leiden]'"
        ) from None
    found = igraph.Graph.from_networkx(graph)
    return leidenalg.find_partition(found, leidenalg.ModularityVertexPartition, seed=seed)


def bigclam(edges: Edges, num_nodes: int, num_communities: int, seed: int = 0) -> Bools:
    r"""Overlapping communities by BigCLAM (Yang and Leskovec, 2013).

    Maximises the likelihood of :math:`P(A_{ij} = 1) = 1 - \exp(-f_i^\top f_j)` over non-negative
    affiliations, by projected gradient steps of the best of several sizes. They start from the
    neighbourhoods of lowest conductance. A node belongs where its affiliation is at least
    :math:`\sqrt{-\log(1 - \varepsilon)}`, with :math:`\varepsilon` the density of the graph.
    """
    graph = Adjacency(torch.from_numpy(edges), num_nodes)
    f = torch.from_numpy(_neighbourhoods(edges, num_nodes, num_communities, seed))
    for _ in range(STEPS):
        value = log_likelihood(f.requires_grad_(), graph, LEAST_RATE)
        step = torch.autograd.grad(value, f)[0] / num_nodes
        with torch.no_grad():
            tried = [(f + size * step).clamp(0, MOST_AFFILIATION) for size in STEP_SIZES]
            values = [float(log_likelihood(one, graph, LEAST_RATE)) for one in tried]
        if max(values) <= value.item():
            break
        f = tried[int(np.argmax(values))]
    least = min(density(edges.shape[1], num_nodes), 1 - LEAST_RATE)
    return np.asarray(f.detach().numpy() >= np.sqrt(-np.log1p(-least)))


def _neighbourhoods(
    edges: Edges, num_nodes: int, num_communities: int, seed: int
) -> NDArray[np.float64]:
    """One for the members of the neighbourhoods of locally lowest conductance, noise elsewhere."""
    matrix = sp.csr_array((np.ones(edges.shape[1]), tuple(edges)), shape=(num_nodes, num_nodes))
    near = (matrix + sp.eye_array(num_nodes)).tocsr()
    links = matrix.sum(1)
    volume = near @ links
    outside = volume - (near @ matrix).multiply(near).sum(1)
    smaller = np.maximum(np.minimum(volume, links.sum() - volume), 1)
    conductance = np.where(links > 0, outside / smaller, np.inf)
    f = 0.1 * np.random.default_rng(seed).random((num_nodes, num_communities))
    covered, k = np.zeros(num_nodes, dtype=bool), 0
    for node in np.argsort(conductance, kind="stable"):
        if k < num_communities and not covered[node]:
            group = near.indices[near.indptr[node] : near.indptr[node + 1]]
            covered[group], f[group, k] = True, 1
            k += 1
    return f


DETECTORS: dict[str, Callable[[Edges, int, int, int], Bools | sp.csr_array]] = {
    "louvain": partial(_by_networkx, nx.community.louvain_communities),
    "leiden": partial(_by_networkx, _leiden),
    "label-propagation": partial(_by_networkx, nx.community.asyn_lpa_communities),
    "bigclam": bigclam,
    "nocd": nocd,
}
"""By name, from edges [2, E] in both directions, the numbers of nodes and communities, a seed.

Louvain's and Leiden's methods and label propagation find the number of communities on their own.
"""


def require(name: str, num_nodes: int, num_edges: int) -> None:
    """Refuse a method that is not known or installed, or would not fit in memory."""
    if name not in DETECTORS:
        raise InputError(f"no baseline '{name}'; there are {', '.join(DETECTORS)}")
    if name == "leiden":
        _leiden(nx.path_graph(2), seed=0)
    # Measured at the peak: this many rows of weights, their moments and messages.
    need = FLOAT * HIDDEN * (8 * num_nodes + 3 * num_edges)
    available = available_bytes(torch.device("cpu"))
    if name == "nocd" and need > available:
        raise InputError(
            f"baseline 'nocd' needs about {need / GIB:.1f} GiB for {num_nodes:,} nodes and "
            f"{num_edges // 2:,} edges, and {available / GIB:.1f} GiB are free; leave it out"
        )
