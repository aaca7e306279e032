"""Communities that do not overlap, from the edges alone."""

import warnings

import networkx as nx
import torch
from sklearn.cluster import SpectralClustering
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_networkx, to_scipy_sparse_matrix


def equal_parts(graph: Data, parts: int, seed: int) -> Tensor:
    """Parts of equal size with few edges between them, by recursive Kernighan-Lin bisection.

    Args:
        graph: edges in both directions.
        parts: how many; equal to within a node for powers of two.
        seed: of the first guess at each bisection.

    Returns:
        The part of each node [N].
    """
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
