"""AWE: distributions of anonymous walks, compared by an SVM."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction import DictVectorizer
from sklearn.metrics.pairwise import rbf_kernel
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix

from vepm.baselines.svm import Kernel, KernelBaseline
from vepm.data import Dataset
from vepm.schema import checked

Ints = NDArray[np.int64]


def anonymous(walks: Ints) -> Ints:
    """Walks [W, T] with every node replaced by the number of distinct nodes seen before it."""
    found = np.zeros_like(walks)
    for step in range(1, walks.shape[1]):
        same = walks[:, :step] == walks[:, step : step + 1]
        again = np.take_along_axis(found, same.argmax(1)[:, None], axis=1)[:, 0]
        found[:, step] = np.where(same.any(1), again, found[:, :step].max(1) + 1)
    return found


def walks_of(
    graph: Data, length: int, num_walks: int, draw: np.random.Generator
) -> tuple[Ints, NDArray[np.float64]]:
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


class AWE(KernelBaseline):
    """Ivanov and Burnaev (2018): distributions of anonymous walks and SVM, features unseen.

    Walks have ``length`` steps, ``gammas`` are the widths of the kernel exp(-gamma d^2) to try.
    """

    name: str = "awe"
    length: int = checked(7, low=1, high=12)
    num_walks: int = checked(10_000, low=1)
    gammas: tuple[float, ...] = (1.0, 10.0, 100.0)

    def kernels(self, dataset: Dataset, seed: int) -> list[Kernel]:
        """Kernels of each width between the distributions of the graphs."""
        draw, base = np.random.default_rng(seed), (self.length + 1) ** np.arange(self.length + 1)
        distributions = []
        for graph in dataset.graphs:
            walks, share = walks_of(graph, self.length, self.num_walks, draw)
            kinds, place = np.unique(anonymous(walks) @ base, return_inverse=True)
            distributions.append(dict(zip(kinds, np.bincount(place, share), strict=True)))
        table = DictVectorizer().fit_transform(distributions)
        return [rbf_kernel(table, gamma=gamma) for gamma in self.gammas]
