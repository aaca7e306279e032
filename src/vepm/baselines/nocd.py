"""NOCD: overlapping community detection with graph neural networks (Shchur and Günnemann, 2019)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from vepm.objective import edge_log_likelihood

HIDDEN, DROPOUT, LEARNING_RATE, WEIGHT_DECAY = 128, 0.5, 1e-3, 1e-2
EPOCHS, EVERY, PATIENCE, THRESHOLD = 500, 25, 10, 0.5
"""As in the paper: look at the loss every 25 epochs, and stop after ten looks without a better."""


class _Network(nn.Module):
    def __init__(self, in_channels: int, num_communities: int) -> None:
        super().__init__()
        self.first = GCNConv(in_channels, HIDDEN)
        self.norm = nn.BatchNorm1d(HIDDEN, affine=False)
        self.second = GCNConv(HIDDEN, num_communities)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        values = nn.functional.dropout(x.values(), DROPOUT, self.training)
        kept = torch.sparse_coo_tensor(x.indices(), values, x.shape, check_invariants=False)
        h = self.norm(torch.relu(self.first(kept, edges)))
        h = nn.functional.dropout(h, DROPOUT, self.training)
        return torch.relu(self.second(h, edges))


def nocd(
    x: Tensor, edge_index: Tensor, num_communities: int, seed: int = 0, epochs: int = EPOCHS
) -> NDArray[np.bool_]:
    r"""Members of each community [N, K]: where a GCN's affiliation is above 0.5.

    It is trained on the balanced Bernoulli-Poisson likelihood of the edges, without a posterior.

    Args:
        x: Features [N, F], best sparse; the paper takes the adjacency where there are none.
        edge_index: Edges in both directions.
        num_communities: Number of communities K.
        seed: Seed of the weights and of dropout.
        epochs: Maximum number of epochs.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _Network(x.size(1), num_communities)
        x = nn.functional.normalize(x.to_dense(), dim=1).to_sparse()
        optimizer = torch.optim.Adam(
            model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        best, found, waited = float("inf"), torch.zeros(x.size(0), num_communities), 0
        for epoch in range(epochs):
            if epoch % EVERY == 0:
                model.eval()
                with torch.no_grad():
                    z = model(x, edge_index)
                    loss = float(_loss(z, edge_index))
                better = loss < best
                best, found, waited = (loss, z, 0) if better else (best, found, waited + 1)
                if waited > PATIENCE:
                    break
            model.train()
            optimizer.zero_grad()
            _loss(model(x, edge_index), edge_index).backward()
            optimizer.step()
    return np.asarray(found.numpy() > THRESHOLD)


def _loss(z: Tensor, edge_index: Tensor) -> Tensor:
    # The smallest rate of an edge is that of the graph's density, as in the paper's code.
    eps = edge_index.size(1) / max(z.size(0) * (z.size(0) - 1), 1)
    padded = torch.cat([z, z.new_full((z.size(0), 1), eps**0.5)], dim=1)
    return -edge_log_likelihood(padded, z.new_ones(z.size(1) + 1), edge_index, balanced=True).sum()
