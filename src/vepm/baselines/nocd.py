"""NOCD: overlapping communities by a GCN, and the likelihood that it shares with BigCLAM."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, Sequential

from vepm.baselines.node_level import FeatureDropout
from vepm.evaluation.communities import Bools
from vepm.nn import Adjacency
from vepm.objective import edge_log_likelihood

Edges = NDArray[np.int64]

HIDDEN, DROPOUT, LEARNING_RATE, WEIGHT_DECAY = 128, 0.5, 1e-3, 1e-2
EPOCHS, EVERY, PATIENCE, THRESHOLD = 500, 25, 10, 0.5
"""As in its paper: look at the loss every 25 epochs, stop after ten without a better."""


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
    """That of a Bernoulli-Poisson model in which every pair has at least some rate."""
    padded = torch.cat([z, z.new_full((z.size(0), 1), least_rate**0.5)], dim=1)
    return edge_log_likelihood(padded, z.new_ones(padded.size(1)), edges, balanced=balanced).sum()


def density(num_edges: int, num_nodes: int) -> float:
    """Share of the pairs of nodes that edges, given in both directions, join."""
    return num_edges / max(num_nodes * (num_nodes - 1), 1)
