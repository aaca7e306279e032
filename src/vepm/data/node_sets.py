"""Graphs with labelled nodes, in the raw files that PyG keeps of them."""

import csv
import hashlib
import json
import logging
import os
import warnings
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Actor, Planetoid, WikiCS
from torch_geometric.io import read_planetoid_data

from vepm.data.build import build
from vepm.data.dataset import Dataset
from vepm.data.pyg_graphs import data_parts
from vepm.data.raw import RawFiles, read_integers
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

logger = logging.getLogger("vepm")

WIKICS_FILES = RawFiles("WikiCS", ("data.json",), (f"{WikiCS.url}/data.json",))
EMAIL_FILES = RawFiles(
    "EmailEUCore", ("email-Eu-core.txt", "email-Eu-core-department-labels.txt"), ()
)
_NODES, _EDGES = "out1_node_feature_label.txt", "out1_graph_edges.txt"
_NUM_SPLITS = 10
TRUSTED = "VEPM_TRUSTED_SHA256"
"""Environment variable with checksums of files to open though they are not the published ones."""
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


@cache
def planetoid_checksums() -> dict[str, str]:
    """SHA-256 of the raw files. They are pickles, which can run any code: no others are opened."""
    lines = Path(__file__).with_name("planetoid.sha256").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in map(str.split, lines)}


def planetoid_files(name: str) -> RawFiles:
    """What ``name/raw`` must hold."""
    names = tuple(f"ind.{name.lower()}.{part}" for part in _PARTS)
    return RawFiles(name, names, tuple(f"{Planetoid.url}/{file}" for file in names))


def load_planetoid(name: str, root: Path) -> Dataset:
    """A citation network, its features as published (bag of words, not normalised).

    As in PyG, the 15 test papers of CiteSeer that have neither words nor citations are kept, with
    class 0 and in no mask.
    """
    files = planetoid_files(name)
    raw = files.ensure(root)
    for file in files.names:
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


def load_wikics(root: Path) -> Dataset:
    """The Wikipedia network as an undirected graph; its own masks are those of the first split."""
    path = WIKICS_FILES.ensure(root) / "data.json"
    try:
        data = _wikics(json.loads(path.read_text(encoding="utf-8")))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not the WikiCS layout ({error!r}); fetch it again") from None
    return build(data_parts([data], "WikiCS", single=True, source=str(path)))


def _wikics(raw: Any) -> Data:
    links = chain.from_iterable(((i, j) for j in js) for i, js in enumerate(raw["links"]))
    return Data(
        x=torch.tensor(raw["features"], dtype=torch.float),
        edge_index=torch.tensor(list(links), dtype=torch.long).view(-1, 2).t(),
        y=torch.tensor(raw["labels"], dtype=torch.long),
        train_mask=torch.tensor(raw["train_masks"], dtype=torch.bool).t(),
        val_mask=torch.tensor(raw["val_masks"], dtype=torch.bool).t(),
        test_mask=torch.tensor(raw["test_mask"], dtype=torch.bool),
    )


def geom_gcn_files(folder: str, original: str) -> RawFiles:
    """The files of a set as Geom-GCN published it: nodes, edges and ten splits.

    Args:
        folder: the folder under the root.
        original: what Geom-GCN calls the set.
    """
    splits = tuple(f"{original}_split_0.6_0.2_{i}.npz" for i in range(_NUM_SPLITS))
    tables = (_NODES, _EDGES)
    urls = [f"{Actor.url}/new_data/{original}/{name}" for name in tables]
    urls += [f"{Actor.url}/splits/{name}" for name in splits]
    return RawFiles(folder, tables + splits, tuple(urls))


def load_geom_gcn(name: str, files: RawFiles, root: Path) -> Dataset:
    """A set that Geom-GCN published, its links as an undirected graph."""
    raw = files.ensure(root)
    try:
        x, y = _nodes(raw / _NODES)
        masks = _splits([raw / file for file in files.names[2:]])
    except (OSError, KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{raw}: not the layout of Geom-GCN ({error}); fetch it again") from None
    edges = read_integers(raw / _EDGES, columns=2, delimiter="\t", header=True)
    data = Data(x=x, edge_index=edges.t(), y=y, **masks)
    return build(data_parts([data], name, single=True, source=f"Geom-GCN, {raw}"))


def _nodes(path: Path) -> tuple[Tensor, Tensor]:
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


def _splits(paths: list[Path]) -> dict[str, Tensor]:
    """Masks [N, R] of R splits."""
    files = [np.load(path, allow_pickle=False) for path in paths]
    return {
        name: torch.from_numpy(np.stack([file[name] for file in files], axis=1)).bool()
        for name in MASK_NAMES
    }


def load_email(root: Path) -> Dataset:
    """E-mails in a research institution, the departments as labels."""
    raw = EMAIL_FILES.ensure(root)
    edges, labels = (
        read_integers(raw / name, columns=2, delimiter=None) for name in EMAIL_FILES.names
    )
    if not labels[:, 0].equal(torch.arange(len(labels))):
        raise InputError(f"{raw / EMAIL_FILES.names[1]}: nodes do not count up from 0")
    data = Data(edge_index=edges.t(), y=labels[:, 1], num_nodes=len(labels))
    return build(data_parts([data], "EmailEUCore", single=True, source=f"SNAP, {raw}"))
