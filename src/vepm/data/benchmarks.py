"""Published benchmarks in their raw files: graphs with labelled nodes, and TU sets of graphs."""

import csv
import hashlib
import json
import logging
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Data
from torch_geometric.datasets import Actor, Planetoid, TUDataset, WikiCS
from torch_geometric.io import read_planetoid_data

from vepm.data.build import Parts, build
from vepm.data.dataset import Dataset
from vepm.data.edges import canonical_edges, check_range
from vepm.data.in_memory import data_parts
from vepm.data.tables import RawFiles, read_integers
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

logger = logging.getLogger("vepm")

Features = Literal["labels", "degrees", "constant"]
WIKICS_FILES = RawFiles("WikiCS", ("data.json",), (f"{WikiCS.url}/data.json",))
EMAIL_FILES = RawFiles(
    "EmailEUCore", ("email-Eu-core.txt", "email-Eu-core-department-labels.txt"), ()
)
_TABLES = ("out1_node_feature_label.txt", "out1_graph_edges.txt")
_NUM_SPLITS = 10
TRUSTED = "VEPM_TRUSTED_SHA256"
"""Environment variable with checksums of files to open though they are not the published ones."""
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
# The variant behind published PTC results is not the TU one (PTC_MR), and is not on its server.
_NOT_SERVED = ("PTC",)


@cache
def planetoid_checksums() -> dict[str, str]:
    """SHA-256 of the raw files. They are pickles, which can run any code: no others are opened."""
    lines = Path(__file__).with_name("planetoid.sha256").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in map(str.split, lines)}


def planetoid_files(name: str) -> RawFiles:
    """What ``name/raw`` must hold."""
    names = tuple(f"ind.{name.lower()}.{part}" for part in _PARTS)
    return RawFiles(name, names, tuple(f"{Planetoid.url}/{file}" for file in names))


def load_planetoid(name: str, raw: Path) -> Dataset:
    """A citation network, its features as published (bag of words, not normalised).

    As in PyG, the 15 test papers of CiteSeer that have neither words nor citations are kept, with
    class 0 and in no mask.
    """
    for file in planetoid_files(name).names:
        _verify(raw / file)
    # The files were pickled by old versions of NumPy and SciPy, about which new ones warn.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = read_planetoid_data(str(raw), name)
    return build(data_parts([data], name, single=True, source=f"Planetoid, public split, {raw}"))


def _verify(path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    expected = planetoid_checksums()[path.name]
    if digest == expected:
        return
    if digest in os.environ.get(TRUSTED, "").lower().replace(",", " ").split():
        logger.warning("%s: not the published file, opened because %s names it", path, TRUSTED)
        return
    raise InputError(
        f"{path}: is not the published file (expected SHA-256 {expected[:12]}...) and, "
        "being a pickle that could run any code, is not opened; remove it and fetch it again, or, "
        f"if you made it yourself, put {digest} into the environment variable {TRUSTED}"
    )


def load_wikics(name: str, raw: Path) -> Dataset:
    """The Wikipedia network as an undirected graph; its own masks are those of the first split."""
    path = raw / "data.json"
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
    return build(data_parts([data], name, single=True, source=str(path)))


def geom_gcn_files(name: str, folder: str, original: str) -> RawFiles:
    """The files of a set as Geom-GCN, which calls it ``original``, published it."""
    splits = tuple(f"{original}_split_0.6_0.2_{i}.npz" for i in range(_NUM_SPLITS))
    urls = [f"{Actor.url}/new_data/{original}/{table}" for table in _TABLES]
    urls += [f"{Actor.url}/splits/{split}" for split in splits]
    return RawFiles(folder, _TABLES + splits, tuple(urls))


def load_geom_gcn(name: str, raw: Path, folder: str, original: str) -> Dataset:
    """A set that Geom-GCN published, its links as an undirected graph, with ten splits."""
    nodes, links, *splits = (raw / file for file in geom_gcn_files(name, folder, original).names)
    try:
        x, y = _geom_gcn_nodes(nodes)
        files = [np.load(path, allow_pickle=False) for path in splits]
        masks = {
            mask: torch.from_numpy(np.stack([file[mask] for file in files], axis=1)).bool()
            for mask in MASK_NAMES
        }
    except (OSError, KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{raw}: not the layout of Geom-GCN ({error}); fetch it again") from None
    edges = read_integers(links, columns=2, delimiter="\t", header=True)
    data = Data(x=x, edge_index=edges.t(), y=y, **masks)
    return build(data_parts([data], name, single=True, source=f"Geom-GCN, {raw}"))


def _geom_gcn_nodes(path: Path) -> tuple[Tensor, Tensor]:
    """Features and labels; features are zeros and ones, or the indices of the ones."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t"))[1:]
    order = [int(node) for node, _, _ in rows]
    if sorted(order) != list(range(len(rows))):
        raise ValueError("nodes are not numbered from 0")
    entries = [[int(entry) for entry in words.split(",")] for _, words, _ in rows]
    if {len(row) for row in entries} == {len(entries[0])} and max(map(max, entries)) <= 1:
        table = torch.tensor(entries).float()
    else:
        table = torch.zeros(len(rows), 1 + max(map(max, entries)))
        for i, row in enumerate(entries):
            table[i, row] = 1.0
    place = torch.tensor(order).argsort()
    return table[place], torch.tensor([int(label) for _, _, label in rows])[place]


def load_email(name: str, raw: Path) -> Dataset:
    """E-mails in a research institution, the departments as labels."""
    edges, labels = (
        read_integers(raw / file, columns=2, delimiter=None) for file in EMAIL_FILES.names
    )
    if not labels[:, 0].equal(torch.arange(len(labels))):
        raise InputError(f"{raw / EMAIL_FILES.names[1]}: nodes do not count up from 0")
    data = Data(edge_index=edges.t(), y=labels[:, 1], num_nodes=len(labels))
    return build(data_parts([data], name, single=True, source=f"SNAP, {raw}"))


def tu_files(name: str, features: Features) -> RawFiles:
    """What ``name/raw`` must hold."""
    parts = ["A", "graph_indicator", "graph_labels"]
    parts += ["node_labels"] if features == "labels" else []
    urls = () if name in _NOT_SERVED else (f"{TUDataset.url}/{name}.zip",)
    return RawFiles(name, tuple(f"{name}_{part}.txt" for part in parts), urls)


def load_tu(name: str, raw: Path, features: Features) -> Dataset:
    """A set of graphs in the TU format, with the features that GIN gave it.

    These are one-hot node labels; one-hot degrees, a column for each that occurs; or 1. Node
    attributes and edge labels are left out.
    """
    prefix = raw / name
    classes, labels = read_integers(Path(f"{prefix}_graph_labels.txt")).unique(return_inverse=True)
    batch = _graph_of_node(Path(f"{prefix}_graph_indicator.txt"), labels.numel())
    ends = read_integers(Path(f"{prefix}_A.txt"), columns=2).t() - 1
    check_range(ends, batch.numel(), f"{prefix}_A.txt")
    if bool((batch[ends[0]] != batch[ends[1]]).any()):
        raise InputError(f"{prefix}_A.txt: an edge joins two graphs; fetch the file again")
    x, names = _tu_features(prefix, ends, batch.numel(), features)
    return build(
        Parts(
            name=name,
            source=f"TU collection, {raw}",
            edges=ends,
            num_nodes=batch.numel(),
            x=x,
            feature_names=names,
            labels=labels,
            class_names=[str(value) for value in classes.tolist()],
            batch=batch,
            num_graphs=labels.numel(),
            folds=_folds(raw.parent / "10fold_idx", labels.numel()),
            one_way=True,
        )
    )


def _graph_of_node(path: Path, num_graphs: int) -> Tensor:
    batch = read_integers(path) - 1
    counts_up = bool((batch[1:] >= batch[:-1]).all())
    if not counts_up or not batch.unique().equal(torch.arange(num_graphs)):
        wrong = f"does not count the {num_graphs} graphs of graph_labels up from 1"
        raise InputError(f"{path}: {wrong}; fetch the files again")
    return batch


def _tu_features(
    prefix: Path, ends: Tensor, num_nodes: int, features: Features
) -> tuple[Tensor, tuple[str, ...]]:
    if features == "constant":
        return torch.ones(num_nodes, 1), ("one",)
    if features == "labels":
        path = Path(f"{prefix}_node_labels.txt")
        values = read_integers(path)
        if values.numel() != num_nodes:
            wrong = f"{values.numel()} labels for {num_nodes} nodes"
            raise InputError(f"{path}: {wrong}; fetch the files again")
    else:
        values = torch.bincount(canonical_edges(ends, num_nodes)[0][1], minlength=num_nodes)
    classes, index = values.unique(return_inverse=True)
    kind = features.removesuffix("s")
    return one_hot(index, classes.numel()).float(), tuple(f"{kind}_{c}" for c in classes.tolist())


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
