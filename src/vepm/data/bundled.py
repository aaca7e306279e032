"""Real data that needs no network: handwritten digits and the karate club."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub
from torch_geometric.utils import coalesce

from vepm.data.assemble import node_dataset
from vepm.data.dataset import Dataset
from vepm.data.masks import draw_split
from vepm.tasks import MASK_NAMES

_SIDE = 8
_BRIGHTEST = 16.0
_NUM_NEIGHBOURS = 10
_DIGITS_PER_CLASS = 60
_DIGIT_NAMES = tuple(str(digit) for digit in range(10))


def karate_club() -> Dataset:
    """Zachary's karate club: 34 members, 4 of them labelled for training, the rest for testing."""
    data = KarateClub()[0]
    data.test_mask = ~data.train_mask
    classes = [str(c) for c in range(int(data.y.max()) + 1)]
    return node_dataset(data, name="KarateClub", source="bundled with PyG", class_names=classes)


def digits() -> Dataset:
    """1,797 images of digits as one graph: each joined to its ten nearest, by pixels, either way.

    Twenty images a class train, 300 validate, the rest test.
    """
    images, labels = load_digits(return_X_y=True)
    x = images / _BRIGHTEST
    nearest = kneighbors_graph(x, _NUM_NEIGHBOURS).tocoo()
    ends = torch.from_numpy(np.stack([nearest.row, nearest.col]).astype(np.int64))
    data = Data(
        x=torch.from_numpy(x).float(),
        edge_index=coalesce(torch.cat([ends, ends.flip(0)], dim=1)),
        y=torch.from_numpy(labels),
    )
    split = draw_split(data.y, per_class=20, num_val=300, seed=0)
    for name, mask in zip(MASK_NAMES, split, strict=True):
        data[name] = mask
    return node_dataset(
        data,
        name="digits",
        source="scikit-learn's digits, 10 nearest neighbours",
        class_names=_DIGIT_NAMES,
        feature_names=[f"pixel_{row}_{col}" for row in range(_SIDE) for col in range(_SIDE)],
    )


def digits_graphs() -> Dataset:
    """600 images of digits, 60 a class, each a graph of its inked pixels.

    Pixels with ink are nodes, joined to those of their eight neighbours that have ink; features
    are the ink and the place, row and column from -1 to 1.
    """
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(labels.size)
    chosen = np.sort(
        np.concatenate([order[labels[order] == digit][:_DIGITS_PER_CLASS] for digit in range(10)])
    )
    graphs = [
        _grid_graph(torch.from_numpy(images[i]).float().view(_SIDE, _SIDE), int(labels[i]))
        for i in chosen
    ]
    return Dataset(
        name="digits-graphs",
        task="graph",
        graphs=graphs,
        num_classes=len(_DIGIT_NAMES),
        class_names=_DIGIT_NAMES,
        feature_names=("ink", "row", "column"),
        graph_names=tuple(f"digit_{i}" for i in chosen),
        source="scikit-learn's digits, grids of inked pixels",
    )


def _grid_graph(image: Tensor, label: int) -> Data:
    place = (image > 0).nonzero()
    # Chebyshev distance 1: the eight neighbours.
    near = (place[:, None] - place[None]).abs().amax(dim=2) == 1
    target, source = near.nonzero(as_tuple=True)
    ink = image[image > 0, None] / _BRIGHTEST
    return Data(
        x=torch.cat([ink, place * (2 / (_SIDE - 1)) - 1], dim=1),
        edge_index=torch.stack([source, target]),
        y=torch.tensor([label]),
    )
