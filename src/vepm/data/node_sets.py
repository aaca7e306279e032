"""Graphs with labelled nodes in the raw files of PyG: WikiCS, WebKB, Actor and EmailEUCore."""

import csv
import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Actor, WikiCS

from vepm.data.build import build
from vepm.data.dataset import Dataset
from vepm.data.pyg_graphs import data_parts
from vepm.data.raw import RawFiles, read_integers
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

WIKICS_FILES = RawFiles("WikiCS", ("data.json",), (f"{WikiCS.url}/data.json",))
EMAIL_FILES = RawFiles(
    "EmailEUCore", ("email-Eu-core.txt", "email-Eu-core-department-labels.txt"), ()
)
_NODES, _EDGES = "out1_node_feature_label.txt", "out1_graph_edges.txt"
_NUM_SPLITS = 10


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
