"""The Weisfeiler-Lehman subtree kernel (Shervashidze et al., 2011) with an SVM."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Batch, Data
from torch_geometric.nn import WLConv

from vepm.baselines.base import Baseline
from vepm.baselines.nodes import single_epoch_curve
from vepm.data.dataset import Dataset
from vepm.evaluation import Curve, Split, choose_epoch

Kernel = NDArray[np.float64]
Ints = NDArray[np.int64]


def wl_features(graphs: Sequence[Data], num_iterations: int) -> list[sparse.csr_array]:
    """Counts of the colours of each graph [G, colours], before and after each refinement.

    The first colours are the distinct rows of node features. A node's next colour stands for its
    colour and the multiset of its neighbours' colours.

    Args:
        graphs: the graphs, edges in both directions.
        num_iterations: refinements h.

    Returns:
        h + 1 sparse matrices; graphs of equal structure have equal rows.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from vepm.baselines.wl import wl_features
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
        curve: Curve = {"train_loss": [], "val_loss": [], "val_accuracy": [], "test_accuracy": []}
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
    """Subtree kernel and SVM over a grid of refinements and penalties.

    Args:
        max_iterations: most refinements to try.
    """

    name: str = "wl"
    max_iterations: int = 5

    def kernels(self, dataset: Dataset, seed: int) -> list[Kernel]:
        """Kernels of 0 to the most refinements."""
        return wl_kernels(dataset.graphs, self.max_iterations)
