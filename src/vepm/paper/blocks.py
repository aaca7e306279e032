"""Other ways to divide a graph by its edges alone: cuts and stochastic blockmodels."""

import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from sklearn.cluster import SpectralClustering
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.nn.functional import one_hot
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix

STEPS, LEARNING_RATE, TINY = 500, 0.05, 1e-6


def metis(graph: Data, parts: int, seed: int) -> Tensor:
    """Parts [N, K] of equal size with few edges between, by METIS (Karypis and Kumar, 1998)."""
    import pymetis

    edges = to_scipy_sparse_matrix(graph.edge_index, num_nodes=graph.num_nodes).tocsr()
    neighbours = np.split(edges.indices, edges.indptr[1:-1])
    found = pymetis.part_graph(parts, neighbours, options=pymetis.Options(seed=seed))
    return one_hot(torch.tensor(found[1]), parts).double()


def spectral(graph: Data, parts: int, seed: int) -> Tensor:
    """Parts [N, K] by spectral clustering of the normalised Laplacian."""
    edges = to_scipy_sparse_matrix(graph.edge_index, num_nodes=graph.num_nodes).tocsr()
    model = SpectralClustering(
        parts, affinity="precomputed", assign_labels="cluster_qr", random_state=seed
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        return one_hot(torch.from_numpy(model.fit_predict(edges)).long(), parts).double()


def sbm(graph: Data, parts: int, seed: int, steps: int = STEPS) -> Tensor:
    """Blocks [N, K] of the stochastic blockmodel, by mean-field variational inference.

    Nodes have a distribution over blocks each, which starts from spectral clustering; pairs of
    nodes are linked with a probability of their blocks alone (Holland et al., 1983).
    """
    tau = 0.9 * spectral(graph, parts, seed) + 0.1 / parts
    for _ in range(steps):
        before, tau = tau, (tau + block_scores(tau, graph.edge_index).softmax(1)) / 2
        if (tau - before).abs().max() < TINY:
            break
    return one_hot(tau.argmax(1), parts).double()


def block_scores(tau: Tensor, edge_index: Tensor) -> Tensor:
    """Expected log-likelihood of a node's pairs in each block [N, K], all else as it is in tau."""
    source, target = edge_index
    size = tau.sum(0)
    near = torch.zeros_like(tau).index_add_(0, target, tau[source])
    pairs = size[:, None] * size - tau.T @ tau
    rate = (tau.T @ near / pairs.clamp_min(TINY)).clamp(TINY, 1 - TINY)
    return near @ rate.logit() + (size - tau) @ (-rate).log1p() + size.clamp_min(TINY).log()


def mmsb(graph: Data, parts: int, seed: int, steps: int = STEPS) -> Tensor:
    r"""Memberships [N, K] of the mixed-membership stochastic blockmodel (Airoldi et al., 2008).

    Node p has memberships :math:`\pi_p` from a symmetric Dirichlet distribution; towards every
    other node it takes a block from them, and two blocks are linked with a probability of their
    own. Variational inference with a Dirichlet distribution for each node, the blocks of a pair
    summed out; of pairs without an edge, which are many and whose probability x of one is small,
    :math:`\log(1 - x)` counts as :math:`-x`.
    """
    nodes = int(graph.num_nodes or 0)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(nodes, parts, generator=generator, dtype=torch.double)
    log_gamma = (noise / 2 + math.log(nodes / parts)).requires_grad_()
    density = graph.num_edges / nodes**2
    # Communities start as denser within than between.
    log_rate = (4 * torch.eye(parts, dtype=torch.double) + math.log(density / 4)).requires_grad_()
    prior = Dirichlet(torch.full((nodes, parts), 1 / parts, dtype=torch.double))
    optimizer = torch.optim.Adam([log_gamma, log_rate], lr=LEARNING_RATE)
    for _ in range(steps):
        gamma, rate = log_gamma.exp(), ((log_rate + log_rate.T) / 2).exp()
        weight = (gamma.digamma() - gamma.sum(1, keepdim=True).digamma()).exp()
        bound = link_bound(weight, rate, graph.edge_index)
        loss = kl_divergence(Dirichlet(gamma), prior).sum() - bound
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (log_gamma.exp() / log_gamma.exp().sum(1, keepdim=True)).detach()


def link_bound(weight: Tensor, rate: Tensor, edge_index: Tensor) -> Tensor:
    """Bound of the log-likelihood of all pairs, given the weights of nodes in blocks [N, K]."""
    (source, target), total = edge_index, weight.sum(1)
    others = len(total) - 1.0 - target.bincount(minlength=len(total)).double()
    share = weight / total[:, None]
    every = (share.sum(0) @ rate) @ share.sum(0)
    sent = share @ rate
    own, linked = (sent * share).sum(), (sent[source] * share[target]).sum(1)
    edges = linked.log() + total[source].log() + total[target].log()
    return edges.sum() / 2 + others @ total.log() - (every - own - linked.sum()) / 2


DIVISIONS: dict[str, Callable[[Data, int, int], Tensor]] = {
    "metis": metis,
    "spectral": spectral,
    "sbm": sbm,
    "mmsb": mmsb,
}
"""By name, from a graph, the number of communities and a seed to memberships [N, K]."""
