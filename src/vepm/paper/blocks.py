"""Other ways to find communities from the edges alone: partitions and blockmodels."""

import warnings

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import xlogy
from sklearn.cluster import SpectralClustering
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_networkx, to_scipy_sparse_matrix

TINY = 1e-12

Counts = NDArray[np.float64]


def equal_parts(graph: Data, parts: int, seed: int) -> Tensor:
    """Parts [N] of equal size with few edges between, by recursive Kernighan-Lin bisection."""
    network = to_networkx(graph, to_undirected=True)
    found = [set(network)]
    while len(found) < parts:
        found.sort(key=len)
        largest = network.subgraph(found.pop())
        found += [set(half) for half in nx.community.kernighan_lin_bisection(largest, seed=seed)]
    blocks = torch.empty(graph.x.size(0), dtype=torch.long)
    for k, part in enumerate(found):
        blocks[list(part)] = k
    return blocks


def spectral_parts(graph: Data, parts: int, seed: int) -> Tensor:
    """Parts by spectral clustering of the normalised Laplacian [N]."""
    affinity = to_scipy_sparse_matrix(graph.edge_index, num_nodes=graph.x.size(0)).tocsr()
    model = SpectralClustering(
        parts, affinity="precomputed", assign_labels="cluster_qr", random_state=seed
    )
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        return torch.from_numpy(model.fit_predict(affinity)).long()


def degree_corrected_blocks(graph: Data, parts: int, seed: int, sweeps: int = 30) -> Tensor:
    r"""Blocks of Karrer and Newman's degree-corrected stochastic blockmodel [N].

    .. math:: \max_b \sum_{rs} m_{rs} \log \frac{m_{rs}}{\kappa_r \kappa_s}

    Starting from equal parts, nodes move one at a time to their best block until none moves.
    """
    nodes = graph.x.size(0)
    neighbours = to_scipy_sparse_matrix(graph.edge_index, num_nodes=nodes).tocsr()
    blocks = equal_parts(graph, parts, seed).numpy()
    onehot = np.eye(parts)[blocks]
    between: Counts = onehot.T @ (neighbours @ onehot)
    order = np.random.default_rng(seed)
    for _ in range(sweeps):
        moved = 0
        for node in order.permutation(nodes):
            reached = neighbours.indices[neighbours.indptr[node] : neighbours.indptr[node + 1]]
            links = np.bincount(blocks[reached], minlength=parts).astype(float)
            between[blocks[node]] -= links
            between[:, blocks[node]] -= links
            best = _best_block(between, links, blocks[node])
            between[best] += links
            between[:, best] += links
            moved += int(best != blocks[node])
            blocks[node] = best
        if not moved:
            break
    return torch.from_numpy(blocks).long()


def _best_block(between: Counts, links: Counts, current: int) -> int:
    parts = len(links)
    each = np.arange(parts)
    tried = np.repeat(between[None], parts, axis=0)
    tried[each, each] += links
    tried[each, :, each] += links
    stubs = tried.sum(axis=2)
    score = xlogy(tried, tried).sum(axis=(1, 2)) - 2 * xlogy(stubs, stubs).sum(axis=1)
    best = int(score.argmax())
    return best if score[best] > score[current] + 1e-9 else current


def mixed_memberships(graph: Data, parts: int, seed: int, steps: int = 500) -> Tensor:
    r"""Affiliations [N, K] of Ball, Karrer and Newman's mixed-membership blockmodel.

    .. math:: A_{ij} \sim \mathrm{Poisson}\Big(\sum_k z_{ik} z_{jk}\Big)

    That is the edge partition model without features, fitted by expectation maximisation: each
    edge is split among the communities that explain it, then affiliations are re-estimated.
    """
    source, target = graph.edge_index
    z = torch.rand(graph.x.size(0), parts, generator=torch.Generator().manual_seed(seed))
    for _ in range(steps):
        split = z[source] * z[target]
        split = split / split.sum(1, keepdim=True).clamp_min(TINY)
        z = torch.zeros_like(z).index_add_(0, target, split) / split.sum(0).clamp_min(TINY).sqrt()
    return z
