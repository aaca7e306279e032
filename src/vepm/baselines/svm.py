"""Graph kernels with an SVM: Weisfeiler-Lehman subtrees, and anonymous walks."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction import DictVectorizer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Batch, Data
from torch_geometric.nn import WLConv
from torch_geometric.utils import to_scipy_sparse_matrix

from vepm.baselines.base import COLUMNS, Baseline, single_epoch_curve
from vepm.data import Dataset
from vepm.evaluation import Curve, Split, choose_epoch
from vepm.schema import checked

Kernel = NDArray[np.float64]
Ints = NDArray[np.int64]


def wl_features(graphs: Sequence[Data], num_iterations: int) -> list[sparse.csr_array]:
    """Counts of the colours of each graph [G, colours], before and after each refinement.

    The first colours are the distinct rows of node features. A node's next colour stands for its
    colour and the multiset of its neighbours' colours.
    """
    plain = [Data(x=graph.x, edge_index=graph.edge_index) for graph in graphs]
    joined = Batch.from_data_list(plain)
    owner, ones = joined.batch.numpy(), np.ones(joined.num_nodes, dtype=np.int64)
    refine, colour = WLConv(), torch.unique(joined.x, dim=0, return_inverse=True)[1]
    counts = []
    for step in range(num_iterations + 1):
        if step:
            colour = refine(colour, joined.edge_index)
        place = np.unique(colour.numpy(), return_inverse=True)[1]
        counts.append(sparse.csr_array((ones, (owner, place)), (len(graphs), place.max() + 1)))
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


class KernelBaseline(Baseline):
    """An SVM over a grid of kernels and penalties ``C``.

    The grid takes the place of epochs: the curve scores every setting, and then once more, as its
    last entry, the one that cross-validation within the training part, in ``inner_folds``, prefers.
    So rule ``last`` is a nested cross-validation, and ``gin`` picks one setting for all folds, as
    published numbers of kernels do.
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
        y = labels[train].numpy()
        curve: Curve = {name: [] for name in COLUMNS}
        num_folds = min(self.inner_folds, int(np.unique(y, return_counts=True)[1].min()))
        preference, guesses = [], []
        for kernel, penalty in product(self.kernels(dataset, seed), self.C):
            inner = kernel[np.ix_(train, train)]
            model = SVC(C=penalty, kernel="precomputed")
            if num_folds > 1:
                folds = StratifiedKFold(num_folds, shuffle=True, random_state=seed)
                preference.append(float(cross_val_score(model, inner, y, cv=folds).mean()))
            predicted = torch.from_numpy(model.fit(inner, y).predict(kernel[:, train]))
            guesses.append(predicted[split.test])
            for name, values in single_epoch_curve(predicted, labels, split).items():
                curve[name] += values
        chosen = choose_epoch(preference) if preference else 0
        curve = {name: values + values[chosen : chosen + 1] for name, values in curve.items()}
        val = curve["val_accuracy"]
        # An SVM has no probabilities: its guesses are certain.
        guess = [*guesses, guesses[chosen]][choose_epoch(val) if val else -1]
        return curve, one_hot(guess, dataset.num_classes).double()


class WLKernel(KernelBaseline):
    """Shervashidze et al. (2011): subtree kernels of 0 to ``max_iterations`` refinements."""

    name: str = "wl"
    max_iterations: int = 5

    def kernels(self, dataset: Dataset, seed: int) -> list[Kernel]:
        """Kernels of 0 to the most refinements."""
        return wl_kernels(dataset.graphs, self.max_iterations)


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

    All walks if there are no more than ``num_walks``, otherwise that many random ones.
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
