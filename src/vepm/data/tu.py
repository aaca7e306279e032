"""Graph-classification benchmarks in the TU format, with the features GIN gave them."""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.datasets import TUDataset

from vepm.data.build import Parts, build
from vepm.data.dataset import Dataset
from vepm.data.edges import canonical_edges, check_range
from vepm.data.raw import RawFiles, read_integers
from vepm.errors import InputError

Features = Literal["labels", "degrees", "constant"]

# The variant behind published PTC results is not the TU one (PTC_MR), and is not on its server.
_NOT_SERVED = ("PTC",)


def tu_files(name: str, features: Features) -> RawFiles:
    """What ``name/raw`` must hold."""
    parts = ["A", "graph_indicator", "graph_labels"]
    parts += ["node_labels"] if features == "labels" else []
    urls = () if name in _NOT_SERVED else (f"{TUDataset.url}/{name}.zip",)
    return RawFiles(name, tuple(f"{name}_{part}.txt" for part in parts), urls)


def load_tu(name: str, root: Path, features: Features) -> Dataset:
    """A set of graphs; node attributes and edge labels are left out, as GIN did.

    Args:
        name: the dataset's name in the TU collection.
        root: the PyG root.
        features: one-hot node labels; one-hot degrees, a column for each that occurs; or 1.
    """
    raw = tu_files(name, features).ensure(root)
    prefix = raw / name
    classes, labels = _read(prefix, "graph_labels").unique(return_inverse=True)
    batch = _graph_of_node(prefix, labels.numel())
    num_nodes = batch.numel()
    ends = _read(prefix, "A", columns=2).t() - 1
    check_range(ends, num_nodes, f"{prefix}_A.txt")
    if bool((batch[ends[0]] != batch[ends[1]]).any()):
        raise InputError(f"{prefix}_A.txt: an edge joins two graphs; fetch the file again")
    x, names = _features(prefix, ends, num_nodes, features)
    return build(
        Parts(
            name=name,
            source=f"TU collection, {raw}",
            edges=ends,
            num_nodes=num_nodes,
            x=x,
            feature_names=names,
            labels=labels,
            class_names=[str(value) for value in classes.tolist()],
            batch=batch,
            num_graphs=labels.numel(),
            folds=_folds(root / name / "10fold_idx", labels.numel()),
            one_way=True,
        )
    )


def _features(
    prefix: Path, ends: Tensor, num_nodes: int, features: Features
) -> tuple[Tensor, tuple[str, ...]]:
    if features == "constant":
        return torch.ones(num_nodes, 1), ("one",)
    if features == "labels":
        values = _node_labels(prefix, num_nodes)
    else:
        edge_index, _ = canonical_edges(ends, num_nodes)
        values = torch.bincount(edge_index[1], minlength=num_nodes)
    classes, index = values.unique(return_inverse=True)
    kind = features.removesuffix("s")
    return one_hot(index, classes.numel()).float(), tuple(f"{kind}_{c}" for c in classes.tolist())


def _graph_of_node(prefix: Path, num_graphs: int) -> Tensor:
    batch = _read(prefix, "graph_indicator") - 1
    counts_up = bool((batch[1:] >= batch[:-1]).all()) and int(batch[0]) == 0
    if not counts_up or batch.unique().numel() != num_graphs or int(batch[-1]) != num_graphs - 1:
        raise InputError(
            f"{prefix}_graph_indicator.txt: does not count the {num_graphs} graphs of "
            "graph_labels up from 1; fetch the files again"
        )
    return batch


def _node_labels(prefix: Path, num_nodes: int) -> Tensor:
    labels = _read(prefix, "node_labels")
    if labels.numel() != num_nodes:
        raise InputError(
            f"{prefix}_node_labels.txt: {labels.numel()} labels for {num_nodes} nodes; "
            "fetch the files again"
        )
    return labels


def _read(prefix: Path, part: str, columns: int = 1) -> Tensor:
    return read_integers(Path(f"{prefix}_{part}.txt"), columns)


def _folds(folder: Path, num_graphs: int) -> tuple[tuple[Tensor, Tensor], ...] | None:
    """The published folds, if all twenty files are there."""
    files = [(folder / f"train_idx-{i}.txt", folder / f"test_idx-{i}.txt") for i in range(1, 11)]
    if not all(path.is_file() for pair in files for path in pair):
        return None
    folds = tuple((read_integers(train), read_integers(test)) for train, test in files)
    for (_, path), fold in zip(files, folds, strict=True):
        indices = torch.cat(fold)
        if int(indices.min()) < 0 or int(indices.max()) >= num_graphs:
            raise InputError(f"{path}: an index is outside 0 to {num_graphs - 1}; correct the fold")
        if indices.unique().numel() != indices.numel():
            raise InputError(f"{path}: a graph is twice in the fold; correct the fold")
    return folds
