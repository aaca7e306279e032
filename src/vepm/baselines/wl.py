"""The Weisfeiler-Lehman subtree kernel (Shervashidze et al., 2011) with an SVM."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC
from torch_geometric.data import Data

from vepm.baselines.base import Baseline
from vepm.baselines.nodes import single_epoch_curve
from vepm.data.dataset import Dataset
from vepm.protocols import Curve, Split, labels_of

Kernel = NDArray[np.float64]


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
    sizes = np.array([graph.x.size(0) for graph in graphs])
    owner = np.repeat(np.arange(len(graphs)), sizes)
    x = torch.cat([graph.x for graph in graphs])
    colour = torch.unique(x, dim=0, return_inverse=True)[1].numpy()
    shift = torch.from_numpy(sizes.cumsum() - sizes)
    edges = [graph.edge_index + first for graph, first in zip(graphs, shift, strict=True)]
    source, target = torch.cat(edges, dim=1).numpy()
    features = [_count(owner, colour, len(graphs))]
    for _ in range(num_iterations):
        colour = _refine(colour, source, target)
        features.append(_count(owner, colour, len(graphs)))
    return features


def _refine(
    colour: NDArray[np.int64], source: NDArray[np.int64], target: NDArray[np.int64]
) -> NDArray[np.int64]:
    order = np.lexsort((colour[source], target))
    around = colour[source[order]]
    ends = np.bincount(target, minlength=colour.size).cumsum()
    starts = np.concatenate([[0], ends[:-1]])
    known: dict[tuple[int, bytes], int] = {}
    refined = [
        known.setdefault((own, around[start:end].tobytes()), len(known))
        for own, start, end in zip(colour.tolist(), starts.tolist(), ends.tolist(), strict=True)
    ]
    return np.array(refined, dtype=np.int64)


def _count(
    owner: NDArray[np.int64], colour: NDArray[np.int64], num_graphs: int
) -> sparse.csr_array:
    shape = (num_graphs, int(colour.max()) + 1)
    counts = sparse.coo_array((np.ones(colour.size, dtype=np.int64), (owner, colour)), shape=shape)
    return counts.tocsr()


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
class WLKernel(Baseline):
    """Subtree kernel and SVM; refinements and C are chosen by cross-validation in training.

    Args:
        max_iterations: most refinements to try.
        C: penalties to try.
        inner_folds: folds of the training part by which both are chosen.
    """

    task = "graph"
    name: str = "wl"
    max_iterations: int = 5
    C: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0, 1000.0)
    inner_folds: int = 5

    def curve(self, dataset: Dataset, split: Split, seed: int) -> Curve:
        """Choose, fit, then score once."""
        labels = labels_of(dataset)
        train = split.train.numpy()
        kernels = wl_kernels(dataset.graphs, self.max_iterations)
        kernel, penalty = self._choose(kernels, train, labels[split.train].numpy(), seed)
        model = SVC(C=penalty, kernel="precomputed")
        model.fit(kernel[np.ix_(train, train)], labels[split.train].numpy())
        predicted = torch.from_numpy(model.predict(kernel[:, train]))
        return single_epoch_curve(predicted, labels, split)

    def _choose(
        self, kernels: list[Kernel], train: NDArray[np.int64], y: NDArray[np.int64], seed: int
    ) -> tuple[Kernel, float]:
        """The pair of best cross-validated accuracy; of several, the fewest refinements."""
        smallest = int(np.bincount(y)[np.unique(y)].min())
        if smallest < 2:
            return kernels[-1], self.C[len(self.C) // 2]
        folds = StratifiedKFold(min(self.inner_folds, smallest), shuffle=True, random_state=seed)
        best, choice = -1.0, (kernels[0], self.C[0])
        for kernel in kernels:
            inner = kernel[np.ix_(train, train)]
            for penalty in self.C:
                model = SVC(C=penalty, kernel="precomputed")
                score = float(cross_val_score(model, inner, y, cv=folds).mean())
                if score > best:
                    best, choice = score, (kernel, penalty)
        return choice
