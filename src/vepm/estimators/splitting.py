"""Cross-validation of nodes with few labels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from vepm.data.labels import draw_split, encode
from vepm.errors import InputError


class NodeSplit:
    """Random splits with a few training labels of each class; all other labels test.

    Stratified folds train on most of the nodes. Node classification is usually about few labels,
    which this splitter draws for ``cross_val_score`` and the like. Unlabelled nodes (-1) are in
    neither part.

    Args:
        labels_per_class: Number of training labels of each class.
        n_splits: Number of splits.
        random_state: Seed of the splits.

    Example:
        >>> from vepm.estimators import NodeSplit
        >>> y = [0, 0, 0, 1, 1, -1]
        >>> [(len(train), len(test)) for train, test in NodeSplit(1, n_splits=2).split(y, y)]
        [(2, 3), (2, 3)]
    """

    def __init__(
        self,
        labels_per_class: int = 20,
        n_splits: int = 5,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        if labels_per_class < 1 or n_splits < 1:
            raise InputError("labels_per_class and n_splits must be at least 1")
        self.labels_per_class = labels_per_class
        self.n_splits = n_splits
        self.random_state = random_state

    def split(
        self, X: Any, y: Any, groups: None = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Positions in X of the nodes that train and of those that test."""
        count = len(X)
        labels, _ = encode(y, count, lambda i: f"y[{i}]", "y")
        random = check_random_state(self.random_state)
        for seed in random.randint(2**31, size=self.n_splits):
            train, _, test = draw_split(
                labels, per_class=self.labels_per_class, num_val=0, seed=int(seed)
            )
            if not test.any():
                raise InputError(
                    f"with {self.labels_per_class} labels per class none is left to test on; "
                    "take fewer"
                )
            yield torch.where(train)[0].numpy(), torch.where(test)[0].numpy()

    def get_n_splits(self, X: Any = None, y: Any = None, groups: None = None) -> int:
        """Number of splits."""
        return self.n_splits
