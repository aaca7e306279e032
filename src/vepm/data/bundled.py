"""Real data that needs no network: handwritten digits and the karate club."""

from dataclasses import replace

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub

from vepm.data.build import Parts, build
from vepm.data.dataset import Dataset
from vepm.data.labels import draw_split
from vepm.data.pyg_graphs import data_parts
from vepm.tasks import MASK_NAMES

_SIDE = 8
_BRIGHTEST = 16.0
_NUM_NEIGHBOURS = 10
_DIGITS_PER_CLASS = 60


def karate_club() -> Dataset:
    """Zachary's karate club: 34 members, 4 of them labelled for training, the rest for testing."""
    data = KarateClub()[0]
    data.test_mask = ~data.train_mask
    return build(data_parts([data], "KarateClub", single=True, source="bundled with PyG"))


def digits() -> Dataset:
    """1,797 images of digits as one graph: each joined to the ten nearest by pixels.

    Twenty images a class train, 300 validate, the rest test.
    """
    images, labels = load_digits(return_X_y=True)
    x = images / _BRIGHTEST
    nearest = kneighbors_graph(x, _NUM_NEIGHBOURS).tocoo()
    ends = torch.from_numpy(np.stack([nearest.row, nearest.col]).astype(np.int64))
    y = torch.from_numpy(labels)
    split = draw_split(y, per_class=20, num_val=300, seed=0)
    return build(
        Parts(
            name="digits",
            source="scikit-learn's digits, 10 nearest neighbours",
            edges=ends,
            num_nodes=y.numel(),
            one_way=True,
            x=torch.from_numpy(x).float(),
            feature_names=[f"pixel_{row}_{col}" for row in range(_SIDE) for col in range(_SIDE)],
            labels=y,
            masks=dict(zip(MASK_NAMES, split, strict=True)),
        )
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
    parts = data_parts(graphs, "digits-graphs", single=False)
    return build(
        replace(
            parts,
            source="scikit-learn's digits, grids of inked pixels",
            feature_names=("ink", "row", "column"),
            graph_names=[f"digit_{i}" for i in chosen],
        )
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
