"""Community detection to compare with: Louvain, Leiden, label propagation and NOCD."""

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import dropout, normalize
from torch_geometric.nn import GCNConv

from vepm.errors import InputError
from vepm.evaluation.communities import as_table
from vepm.objective import edge_log_likelihood

Bools = NDArray[np.bool_]
Edges = NDArray[np.int64]

HIDDEN, DROPOUT, LEARNING_RATE, WEIGHT_DECAY = 128, 0.5, 1e-3, 1e-2
EPOCHS, EVERY, PATIENCE, THRESHOLD = 500, 25, 10, 0.5
"""NOCD's, as in its paper: look at the loss every 25 epochs, stop after ten without a better."""


def louvain(edges: Edges, num_nodes: int, num_communities: int, seed: int = 0) -> Bools:
    """Partition of highest modularity by Louvain's method; it finds the number on its own."""
    found = nx.community.louvain_communities(_networkx(edges, num_nodes), seed=seed)
    return as_table(found, num_nodes)


def label_propagation(edges: Edges, num_nodes: int, num_communities: int, seed: int = 0) -> Bools:
    """Partition by asynchronous label propagation; it finds the number on its own."""
    found = nx.community.asyn_lpa_communities(_networkx(edges, num_nodes), seed=seed)
    return as_table(found, num_nodes)


def leiden(edges: Edges, num_nodes: int, num_communities: int, seed: int = 0) -> Bools:
    """Partition of highest modularity by Leiden's method; it finds the number on its own."""
    igraph, leidenalg = require_leiden()
    graph = igraph.Graph(n=num_nodes, edges=_once(edges))
    found = leidenalg.find_partition(graph, leidenalg.ModularityVertexPartition, seed=seed)
    return as_table(found, num_nodes)


def require_leiden() -> tuple[Any, Any]:
    """The libraries behind Leiden's method; refuses where they are not installed."""
    try:
        import igraph
        import leidenalg
    except ImportError:
        raise InputError(
            "baseline 'leiden' needs leidenalg and igraph: pip install 'vepm[leiden]'"
        ) from None
    return igraph, leidenalg


class _NOCD(nn.Module):
    def __init__(self, in_channels: int, num_communities: int) -> None:
        super().__init__()
        self.first = GCNConv(in_channels, HIDDEN)
        self.norm = nn.BatchNorm1d(HIDDEN, affine=False)
        self.second = GCNConv(HIDDEN, num_communities)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        values = dropout(x.values(), DROPOUT, self.training)
        kept = torch.sparse_coo_tensor(x.indices(), values, x.shape, check_invariants=False)
        h = self.norm(torch.relu(self.first(kept, edges)))
        h = dropout(h, DROPOUT, self.training)
        return torch.relu(self.second(h, edges))


def nocd(edges: Edges, num_nodes: int, num_communities: int, seed: int = 0) -> Bools:
    """Overlapping communities by NOCD (Shchur and Günnemann, 2019), a GCN of the affiliations.

    A node belongs where its affiliation is above 0.5. The network is trained on the balanced
    Bernoulli-Poisson likelihood of the edges, without a posterior. It reads the adjacency as
    features, as its paper does where there are none, and needs more than a few dozen nodes.
    """
    edge_index = torch.from_numpy(edges)
    x = torch.zeros(num_nodes, num_nodes)
    x[tuple(edge_index)] = 1
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _NOCD(num_nodes, num_communities)
        x = normalize(x, dim=1).to_sparse()
        optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        best, found, waited = float("inf"), torch.zeros(num_nodes, num_communities), 0
        for epoch in range(EPOCHS):
            if epoch % EVERY == 0:
                model.eval()
                with torch.no_grad():
                    z = model(x, edge_index)
                    loss = float(_nocd_loss(z, edge_index))
                waited += 1
                if loss < best:
                    best, found, waited = loss, z, 0
                if waited > PATIENCE:
                    break
            model.train()
            optimizer.zero_grad()
            _nocd_loss(model(x, edge_index), edge_index).backward()
            optimizer.step()
    return np.asarray(found.numpy() > THRESHOLD)


def _nocd_loss(z: Tensor, edge_index: Tensor) -> Tensor:
    # The smallest rate of an edge is that of the graph's density, as in the paper's code.
    eps = edge_index.size(1) / max(z.size(0) * (z.size(0) - 1), 1)
    padded = torch.cat([z, z.new_full((z.size(0), 1), eps**0.5)], dim=1)
    return -edge_log_likelihood(padded, z.new_ones(z.size(1) + 1), edge_index, balanced=True).sum()


def _networkx(edges: Edges, num_nodes: int) -> "nx.Graph[int]":
    graph: nx.Graph[int] = nx.empty_graph(num_nodes)
    graph.add_edges_from(_once(edges))
    return graph


def _once(edges: Edges) -> list[Any]:
    """Each pair of nodes that an edge joins, once."""
    return edges[:, edges[0] < edges[1]].T.tolist()


DETECTORS: dict[str, Callable[[Edges, int, int, int], Bools]] = {
    "louvain": louvain,
    "leiden": leiden,
    "label-propagation": label_propagation,
    "nocd": nocd,
}
"""By name, from edges [2, E] in both directions, the numbers of nodes and communities, a seed."""
