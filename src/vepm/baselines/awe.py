"""Anonymous walk embeddings (Ivanov and Burnaev, 2018), feature-based, with an SVM."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix

from vepm.baselines.wl import Ints, Kernel, KernelBaseline
from vepm.data import Dataset
from vepm.schema import checked

Shares = NDArray[np.float64]


def anonymous(walks: Ints) -> Ints:
    """Walks [W, T] with every node replaced by the number of distinct nodes seen before it.

    Example:
        >>> import numpy as np
        >>> from vepm.baselines.awe import anonymous
        >>> anonymous(np.array([[5, 2, 5, 7], [1, 3, 4, 3]])).tolist()
        [[0, 1, 0, 2], [0, 1, 2, 1]]
    """
    found = np.zeros_like(walks)
    for step in range(1, walks.shape[1]):
        same = walks[:, :step] == walks[:, step : step + 1]
        again = np.take_along_axis(found, same.argmax(1)[:, None], axis=1)[:, 0]
        found[:, step] = np.where(same.any(1), again, found[:, :step].max(1) + 1)
    return found


def walks_of(
    graph: Data, length: int, num_walks: int, draw: np.random.Generator
) -> tuple[Ints, Shares]:
    """Walks [W, length + 1] from a random node, and the probability of each.

    All of them where there are no more than ``num_walks``, or else so many random ones.
    """
    links = to_scipy_sparse_matrix(graph.edge_index, num_nodes=graph.num_nodes)
    # A walk that cannot go on stays where it is.
    alone = np.asarray(links.sum(1)).ravel() == 0
    links = sparse.csr_array(links + sparse.diags_array(alone.astype(np.float64)))
    degree, count = links.indptr[1:] - links.indptr[:-1], np.ones(links.shape[0])
    for _ in range(length):
        count = links @ count
    every = count.sum() <= num_walks
    walks = np.arange(links.shape[0]) if every else draw.integers(links.shape[0], size=num_walks)
    walks, share = walks[:, None], np.full(len(walks), 1 / len(walks))
    for _ in range(length):
        last = walks[:, -1]
        if every:
            row = np.arange(len(walks)).repeat(degree[last])
            share, walks, last = (share / degree[last])[row], walks[row], last[row]
            turn = np.arange(len(row)) - np.searchsorted(row, row)
        else:
            turn = (draw.random(len(last)) * degree[last]).astype(np.int64)
        walks = np.column_stack([walks, links.indices[links.indptr[last] + turn]])
    return walks, share


@dataclass(frozen=True, kw_only=True)
class AWE(KernelBaseline):
    """Ivanov and Burnaev (2018): distributions of anonymous walks and SVM, features unseen.

    Args:
        length: steps of a walk.
        num_walks: random walks of a graph; all are taken where there are no more.
        gammas: widths of the kernel exp(-gamma d^2) to try.
    """

    name: str = "awe"
    length: int = checked(7, low=1, high=12)
    num_walks: int = checked(10_000, low=1)
    gammas: tuple[float, ...] = (1.0, 10.0, 100.0)

    def kernels(self, dataset: Dataset, seed: int) -> list[Kernel]:
        """Kernels of each width between the distributions of the graphs."""
        draw = np.random.default_rng(seed)
        base, owner, codes, shares = (self.length + 1) ** np.arange(self.length + 1), [], [], []
        for i, graph in enumerate(dataset.graphs):
            walks, share = walks_of(graph, self.length, self.num_walks, draw)
            code, place = np.unique(anonymous(walks) @ base, return_inverse=True)
            owner.append(np.full(len(code), i))
            codes.append(code)
            shares.append(np.bincount(place, weights=share))
        names, column = np.unique(np.concatenate(codes), return_inverse=True)
        places = (np.concatenate(owner), column)
        shape = (len(dataset.graphs), len(names))
        table = sparse.csr_array((np.concatenate(shares), places), shape=shape)
        return [rbf_kernel(table, gamma=gamma) for gamma in self.gammas]
