"""Graph kernels with an SVM: Weisfeiler-Lehman subtrees, and anonymous walks."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Batch, Data
from torch_geometric.nn import WLConv
from torch_geometric.utils import to_scipy_sparse_matrix

from vepm.baselines.base import Baseline
from vepm.baselines.fitting import COLUMNS, single_epoch_curve
from vepm.data.dataset import Dataset
from vepm.evaluation import Curve, Split, choose_epoch
from vepm.schema import checked

Kernel = NDArray[np.float64]
Ints = NDArray[np.int64]


def wl_features(graphs: Sequence[Data], num_iterations: int) -> list[sparse.csr_array]:
    """Counts of the colours of each graph [G, colours], before and after each refinement.

    The first colours are the distinct rows of node features. A node's next colour stands for its
    colour and the multiset of its neighbours' colours. Graphs of equal structure have equal rows.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from vepm.baselines.svm import wl_features
        >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> path = Data(x=torch.ones(3, 1), edge_index=edges)
        >>> [counts.toarray().tolist() for counts in wl_features([path], 1)]
        [[[3]], [[2, 1]]]
    """
    bare = [Data(x=graph.x, edge_index=graph.edge_index) for graph in graphs]
    joined = Batch.from_data_list(bare)
    refine = WLConv()
    colours = [torch.unique(joined.x, dim=0, return_inverse=True)[1]]
    for _ in range(num_iterations):
        colours.append(refine(colours[-1], joined.edge_index))
    owner, ones = joined.batch.numpy(), np.ones(joined.num_nodes, dtype=np.int64)
    counts = []
    for colour in colours:
        names, place = np.unique(colour.numpy(), return_inverse=True)
        shape = (len(graphs), len(names))
        counts.append(sparse.csr_array((ones, (owner, place)), shape=shape))
    return counts


def wl_kernels(graphs: Sequence[Data], num_iterations: int) -> list[Kernel]:
    """Kernels [G, G] of 0 to h refinements, each scaled to ones on the diagonal."""
    total = np.zeros((len(graphs), len(graphs)))
    kernels = []
    for counts in wl_features(graphs, num_iterations):
        total = total + (counts @ counts.T).toarray()
        length = np.sqrt(total.diagonal())
        kernels.append(total / np.outer(length, length))
    return kernels


@dataclass(frozen=True, kw_only=True)
class KernelBaseline(Baseline):
    """An SVM over a grid of kernels and penalties.

    The grid takes the place of epochs: the curve scores every setting, and then once more, as its
    last entry, the one that cross-validation within the training part prefers. So rule ``last`` is
    a nested cross-validation, and ``gin`` picks one setting for all folds, as published numbers
    of kernels do.

    Args:
        C: penalties to try.
        inner_folds: folds of the training part that choose the last entry.
    """

    task = "graph"
    C: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)
    inner_folds: int = 5

    @abstractmethod
    def kernels(self, dataset: Dataset, seed: int) -> list[Kernel]:
        """Kernels [G, G] to try."""

    def train(self, dataset: Dataset, split: Split, seed: int) -> tuple[Curve, Tensor]:
        """Score every setting, and the chosen one again at the end."""
        labels, train = dataset.labels, split.train.numpy()
        y = labels[split.train].numpy()
        curve: Curve = {name: [] for name in COLUMNS}
        preference: list[float] = []
        guesses: list[Tensor] = []
        for kernel, penalty in product(self.kernels(dataset, seed), self.C):
            inner = kernel[np.ix_(train, train)]
            model = SVC(C=penalty, kernel="precomputed")
            preference.append(self._preference(model, inner, y, seed))
            predicted = torch.from_numpy(model.fit(inner, y).predict(kernel[:, train]))
            guesses.append(predicted[split.test])
            for name, values in single_epoch_curve(predicted, labels, split).items():
                curve[name] += values
        chosen = choose_epoch(preference)
        curve = {name: values + values[chosen : chosen + 1] for name, values in curve.items()}
        val = curve["val_accuracy"]
        # An SVM has no probabilities: its guesses are certain.
        guess = [*guesses, guesses[chosen]][choose_epoch(val) if val else -1]
        return curve, one_hot(guess, dataset.num_classes).double()

    def _preference(self, model: SVC, kernel: Kernel, y: Ints, seed: int) -> float:
        """Cross-validated accuracy within the training part."""
        num_folds = min(self.inner_folds, int(np.unique(y, return_counts=True)[1].min()))
        if num_folds < 2:
            return 0.0
        folds = StratifiedKFold(num_folds, shuffle=True, random_state=seed)
        return float(cross_val_score(model, kernel, y, cv=folds).mean())


@dataclass(frozen=True, kw_only=True)
class WLKernel(KernelBaseline):
    """Shervashidze et al. (2011): subtree kernel and SVM over a grid of refinements and penalties.

    Args:
        max_iterations: most refinements to try.
    """

    name: str = "wl"
    max_iterations: int = 5

    def kernels(self, dataset: Dataset, seed: int) -> list[Kernel]:
        """Kernels of 0 to the most refinements."""
        return wl_kernels(dataset.graphs, self.max_iterations)


def anonymous(walks: Ints) -> Ints:
    """Walks [W, T] with every node replaced by the number of distinct nodes seen before it.

    Example:
        >>> import numpy as np
        >>> from vepm.baselines.svm import anonymous
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
