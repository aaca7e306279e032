"""Datasets known by name, read from raw files or bundled with libraries we depend on."""

import hashlib
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import MultiLabelBinarizer
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub
from torch_geometric.io import read_planetoid_data

from vepm.data.build import Parts, build, data_parts
from vepm.data.canonical import canonical_edges
from vepm.data.columns import ReadOptions
from vepm.data.dataset import Dataset
from vepm.data.generate import draw_split
from vepm.data.npz import read_npz
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

Features = Literal["labels", "degrees", "constant"]
_SIDE, _BRIGHTEST = 8, 16.0  # of the images of digits


def _integers(
    path: Path, columns: int = 1, *, delimiter: str | None = ",", header: bool = False
) -> Tensor:
    """A text file of integers [rows], or [rows, columns]; ``delimiter=None`` means blanks."""
    try:
        if path.stat().st_size == 0:
            raise ValueError("the file is empty")
        values = np.loadtxt(
            path, np.int64, delimiter=delimiter, skiprows=int(header), ndmin=2, encoding="utf-8"
        )
        if values.shape[1] != columns:
            raise ValueError(f"{values.shape[1]} columns where {columns} belong")
    except ValueError as error:
        line = " ".join(str(error).split())
        raise InputError(f"{path}: not integers in columns ({line}); fetch it again") from None
    return torch.from_numpy(values if columns > 1 else values[:, 0])


def load_planetoid(name: str, files: list[Path]) -> Dataset:
    """A citation network with its bags of words as published, and all nodes that PyG has."""
    # The files are pickles, which can run any code: only those with the published sums are opened.
    lines = Path(__file__).with_name("planetoid.sha256").read_text(encoding="utf-8").splitlines()
    expected = {file: digest for digest, file in map(str.split, lines)}
    for file in files:
        if hashlib.sha256(file.read_bytes()).hexdigest() != expected[file.name]:
            wrong = (
                "is not the published file and, being a pickle that could run any code, not read"
            )
            raise InputError(f"{file}: {wrong}; remove it and fetch it again")
    # They were pickled by old versions of NumPy and SciPy, about which new ones warn.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = read_planetoid_data(str(files[0].parent), name)
    return _built(data, name, f"Planetoid, public split, {files[0].parent}")


def _built(data: Data | list[Data], name: str, source: str, **more: Any) -> Dataset:
    graphs = [data] if isinstance(data, Data) else data
    return build(data_parts(graphs, name, single=graphs is not data, source=source, **more))


def load_wikics(name: str, files: list[Path]) -> Dataset:
    """The Wikipedia network as an undirected graph; its own masks are those of the first split."""
    (path,) = files
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        links = [(i, j) for i, ends in enumerate(found["links"]) for j in ends]
        data = Data(
            x=torch.tensor(found["features"], dtype=torch.float),
            edge_index=torch.tensor(links, dtype=torch.long).view(-1, 2).t(),
            y=torch.tensor(found["labels"], dtype=torch.long),
            train_mask=torch.tensor(found["train_masks"], dtype=torch.bool).t(),
            val_mask=torch.tensor(found["val_masks"], dtype=torch.bool).t(),
            test_mask=torch.tensor(found["test_mask"], dtype=torch.bool),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not the WikiCS layout ({error!r}); fetch it again") from None
    return _built(data, name, str(path))


def load_geom_gcn(name: str, files: list[Path]) -> Dataset:
    """A set that Geom-GCN published, its links as an undirected graph, with ten splits."""
    nodes, links, *splits = files
    try:
        _, *lines = nodes.read_text(encoding="utf-8").splitlines()
        rows = sorted((int(i), words, int(y)) for i, words, y in (s.split("\t") for s in lines))
        if [node for node, _, _ in rows] != list(range(len(rows))):
            raise ValueError("nodes are not numbered from 0")
        x = [[int(entry) for entry in words.split(",")] for _, words, _ in rows]
        # Features are zeros and ones, or the indices of the ones.
        if max(map(max, x)) > 1 or len(set(map(len, x))) > 1:
            x = MultiLabelBinarizer(classes=range(1 + max(map(max, x)))).fit_transform(x)
        arrays = [np.load(path, allow_pickle=False) for path in splits]
        masks = {
            mask: torch.from_numpy(np.stack([split[mask] for split in arrays], axis=1)).bool()
            for mask in MASK_NAMES
        }
    except (OSError, KeyError, TypeError, ValueError) as error:
        wrong = f"not the layout of Geom-GCN ({error}); fetch it again"
        raise InputError(f"{nodes.parent}: {wrong}") from None
    edges = _integers(links, columns=2, delimiter="\t", header=True).t()
    y = torch.tensor([label for _, _, label in rows])
    data = Data(x=torch.tensor(x).float(), edge_index=edges, y=y, **masks)
    return _built(data, name, f"Geom-GCN, {nodes.parent}")


def load_email(name: str, files: list[Path]) -> Dataset:
    """E-mails in a research institution, the departments as labels."""
    edges, labels = (_integers(path, columns=2, delimiter=None) for path in files)
    if not labels[:, 0].equal(torch.arange(len(labels))):
        raise InputError(f"{files[1]}: nodes do not count up from 0")
    data = Data(edge_index=edges.t(), y=labels[:, 1], num_nodes=len(labels))
    return _built(data, name, f"SNAP, {files[0].parent}")


def load_tu(name: str, files: list[Path], features: Features = "labels") -> Dataset:
    """Graphs in the TU format, with the features of GIN: one-hot node labels or degrees, or 1."""
    edges, indicator, graph_labels, *node_labels = files
    classes, labels = _integers(graph_labels).unique(return_inverse=True)
    batch, ends = _integers(indicator) - 1, _integers(edges, columns=2).t() - 1
    if not batch.unique_consecutive().equal(torch.arange(labels.numel())):
        wrong = f"does not count the {labels.numel()} graphs of graph_labels up from 1"
        raise InputError(f"{indicator}: {wrong}; fetch the files again")
    values = torch.ones_like(batch)
    if features == "degrees":
        both, _ = canonical_edges(ends, batch.numel(), source=str(edges))
        values = torch.bincount(both[1], minlength=batch.numel())
    for path in node_labels:
        values = _integers(path)
        if values.numel() != batch.numel():
            wrong = f"{values.numel()} labels for {batch.numel()} nodes"
            raise InputError(f"{path}: {wrong}; fetch the files again")
    columns, index = values.unique(return_inverse=True)
    names = [f"{features.removesuffix('s')}_{value}" for value in columns.tolist()]
    return build(
        Parts(
            name=name,
            source=f"TU collection, {edges.parent}",
            edges=ends,
            num_nodes=batch.numel(),
            x=one_hot(index, columns.numel()).float(),
            feature_names=["one"] if features == "constant" else names,
            labels=labels,
            class_names=[str(value) for value in classes.tolist()],
            batch=batch,
            num_graphs=labels.numel(),
            folds=_folds(edges.parents[1] / "10fold_idx", labels.numel()),
            one_way=True,
        )
    )


def _folds(folder: Path, num_graphs: int) -> tuple[tuple[Tensor, Tensor], ...] | None:
    """The published folds, if all twenty files are there."""
    files = [(folder / f"train_idx-{i}.txt", folder / f"test_idx-{i}.txt") for i in range(1, 11)]
    if not all(path.is_file() for pair in files for path in pair):
        return None
    folds = tuple((_integers(train), _integers(test)) for train, test in files)
    for (_, path), fold in zip(files, folds, strict=True):
        indices = torch.cat(fold).tolist()
        if len({*indices} & {*range(num_graphs)}) < len(indices):
            wrong = f"an index is outside 0 to {num_graphs - 1}, or twice in the fold"
            raise InputError(f"{path}: {wrong}; correct the fold")
    return folds


def load_npz(name: str, files: list[Path], **options: Any) -> Dataset:
    """A graph in an archive of arrays; options are those of :func:`vepm.data.read`."""
    how = ReadOptions(**options)
    # No warning about the other arrays of a published file.
    return build(replace(read_npz(files[0], how), name=name, unused=()), how)


def load_karate_club(name: str, _: list[Path]) -> Dataset:
    """Zachary's karate club: 34 members, 4 of them labelled for training, the rest for testing."""
    data = KarateClub()[0]
    data.test_mask = ~data.train_mask
    return _built(data, name, "bundled with PyG")


def load_digits_graph(name: str, _: list[Path]) -> Dataset:
    """1,797 images of digits, each joined to the ten nearest; 20 a class train, 300 validate."""
    images, labels = load_digits(return_X_y=True)
    x, y = images / _BRIGHTEST, torch.from_numpy(labels)
    nearest = kneighbors_graph(x, 10).tocoo()
    edges = torch.from_numpy(np.stack([nearest.row, nearest.col]).astype(np.int64))
    masks = dict(zip(MASK_NAMES, draw_split(y, per_class=20, num_val=300, seed=0), strict=True))
    data = Data(x=torch.from_numpy(x), edge_index=edges, y=y, **masks)
    source = "scikit-learn's digits, 10 nearest neighbours"
    names = [f"pixel_{row}_{col}" for row in range(_SIDE) for col in range(_SIDE)]
    return _built(data, name, source, feature_names=names, one_way=True)


def load_digits_graphs(name: str, _: list[Path]) -> Dataset:
    """600 images of digits, 60 a class, each a graph of its inked pixels with ink and place."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(labels.size)
    chosen = np.sort(np.concatenate([order[labels[order] == digit][:60] for digit in range(10)]))
    graphs = []
    for i in chosen:
        image = torch.from_numpy(images[i]).float().view(_SIDE, _SIDE)
        place, ink = (image > 0).nonzero(), image[image > 0, None] / _BRIGHTEST
        # Chebyshev distance 1: the eight neighbours.
        near = (place[:, None] - place[None]).abs().amax(dim=2) == 1
        x = torch.cat([ink, place * (2 / (_SIDE - 1)) - 1], dim=1)
        graphs.append(Data(x=x, edge_index=near.nonzero().t(), y=torch.tensor([labels[i]])))
    names: Any = {"feature_names": ("ink", "row", "column")}
    names["graph_names"] = [f"digit_{i}" for i in chosen]
    return _built(graphs, name, "scikit-learn's digits, grids of inked pixels", **names)
