"""Published benchmarks in their raw files: where these lie, and how they are fetched and read."""

import hashlib
import io
import json
import urllib.request
import warnings
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from sklearn.preprocessing import MultiLabelBinarizer
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data

from vepm.data.build import Parts, build
from vepm.data.dataset import Dataset
from vepm.data.edges import canonical_edges, check_range
from vepm.data.in_memory import data_parts
from vepm.errors import InputError
from vepm.files import write_bytes
from vepm.tasks import MASK_NAMES

Features = Literal["labels", "degrees", "constant"]
_TIMEOUT_SECONDS = 30
# Several times the largest dataset known here, and little enough for a machine's memory.
_LARGEST = 2**30


@dataclass(frozen=True)
class RawFiles:
    """The raw files of one dataset under a PyG root.

    They can be fetched from ``urls``: the files themselves, one .zip that holds them, or none.
    """

    folder: str
    names: tuple[str, ...]
    urls: tuple[str, ...] = ()
    inside: str = "raw"

    def missing(self, root: Path) -> list[Path]:
        """The files that are not there."""
        folder = root / self.folder / self.inside
        return [folder / name for name in self.names if not (folder / name).is_file()]

    def ensure(self, root: Path) -> list[Path]:
        """The files, with what is missing fetched if that can be done."""
        folder, why = root / self.folder / self.inside, "cannot be fetched from anywhere"
        if self.missing(root):
            try:
                for url in self.urls:
                    for name, content in _fetch(url, {*self.names, "README.txt"}).items():
                        write_bytes(folder / name, content)
            except (OSError, zipfile.BadZipFile) as error:
                why = f"cannot be fetched ({error})"
        missing = ", ".join(path.name for path in self.missing(root))
        if missing:
            origin = f" (from {self.urls[0].rpartition('/')[0]})" if self.urls else ""
            raise InputError(
                f"{self.folder}: raw files are missing and {why}; put {missing} into {folder}"
                f"{origin}, or name another data folder with root= or VEPM_DATA"
            )
        return [folder / name for name in self.names]


def _fetch(url: str, wanted: set[str]) -> dict[str, bytes]:
    """A file by its name, or the wanted ones of an archive, whatever folders it puts them in."""
    if not url.startswith("https://"):
        raise InputError(f"{url}: only https is fetched from; put the files in place by hand")
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310 # nosec B310
        content: bytes = reply.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise InputError(f"{url}: larger than any dataset here; put the files in place by hand")
    if not url.endswith(".zip"):
        return {url.rpartition("/")[2]: content}
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            name = entry.filename.replace("\\", "/").rpartition("/")[2]
            if name in wanted and entry.file_size > _LARGEST:
                raise zipfile.BadZipFile(f"{name} claims {entry.file_size} bytes")
            if name in wanted:
                found[name] = archive.read(entry)
    return found


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


@cache
def planetoid_checksums() -> dict[str, str]:
    """SHA-256 of the raw files. They are pickles, which can run any code: no others are opened."""
    lines = Path(__file__).with_name("planetoid.sha256").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in map(str.split, lines)}


def load_planetoid(name: str, files: list[Path]) -> Dataset:
    """A citation network, its features as published (bag of words, not normalised).

    As in PyG, the 15 test papers of CiteSeer that have neither words nor citations are kept, with
    class 0 and in no mask.
    """
    for file in files:
        expected = planetoid_checksums()[file.name]
        if hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise InputError(
                f"{file}: is not the published file (expected SHA-256 {expected[:12]}...) "
                "and, being a pickle that could run any code, is not opened; remove it and fetch "
                "it again"
            )
    # The files were pickled by old versions of NumPy and SciPy, about which new ones warn.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = read_planetoid_data(str(files[0].parent), name)
    return _single(data, name, f"Planetoid, public split, {files[0].parent}")


def _single(data: Data, name: str, source: str) -> Dataset:
    return build(data_parts([data], name, single=True, source=source))


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
    return _single(data, name, str(path))


def load_geom_gcn(name: str, files: list[Path]) -> Dataset:
    """A set that Geom-GCN published, its links as an undirected graph, with ten splits."""
    nodes, links, *splits = files
    try:
        lines = nodes.read_text(encoding="utf-8").splitlines()[1:]
        rows = sorted(
            (int(node), words, int(y)) for node, words, y in (s.split("\t") for s in lines)
        )
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
        wrong = f"{nodes.parent}: not the layout of Geom-GCN ({error})"
        raise InputError(f"{wrong}; fetch it again") from None
    edges = _integers(links, columns=2, delimiter="\t", header=True).t()
    y = torch.tensor([label for _, _, label in rows])
    data = Data(x=torch.tensor(x).float(), edge_index=edges, y=y, **masks)
    return _single(data, name, f"Geom-GCN, {nodes.parent}")


def load_email(name: str, files: list[Path]) -> Dataset:
    """E-mails in a research institution, the departments as labels."""
    edges, labels = (_integers(path, columns=2, delimiter=None) for path in files)
    if not labels[:, 0].equal(torch.arange(len(labels))):
        raise InputError(f"{files[1]}: nodes do not count up from 0")
    data = Data(edge_index=edges.t(), y=labels[:, 1], num_nodes=len(labels))
    return _single(data, name, f"SNAP, {files[0].parent}")


def load_tu(name: str, files: list[Path], features: Features = "labels") -> Dataset:
    """A set of graphs in the TU format, with the features that GIN gave it.

    These are one-hot node labels; one-hot degrees, a column for each that occurs; or 1. Node
    attributes and edge labels are left out.
    """
    edges, indicator, graph_labels, *node_labels = files
    classes, labels = _integers(graph_labels).unique(return_inverse=True)
    batch, ends = _integers(indicator) - 1, _integers(edges, columns=2).t() - 1
    counts_up = bool((batch[1:] >= batch[:-1]).all())
    if not counts_up or not batch.unique().equal(torch.arange(labels.numel())):
        wrong = f"does not count the {labels.numel()} graphs of graph_labels up from 1"
        raise InputError(f"{indicator}: {wrong}; fetch the files again")
    check_range(ends, batch.numel(), str(edges))
    if bool((batch[ends[0]] != batch[ends[1]]).any()):
        raise InputError(f"{edges}: an edge joins two graphs; fetch the file again")
    x, names = _tu_features(node_labels, ends, batch.numel(), features)
    return build(
        Parts(
            name=name,
            source=f"TU collection, {edges.parent}",
            edges=ends,
            num_nodes=batch.numel(),
            x=x,
            feature_names=names,
            labels=labels,
            class_names=[str(value) for value in classes.tolist()],
            batch=batch,
            folds=_folds(edges.parents[1] / "10fold_idx", labels.numel()),
            one_way=True,
        )
    )


def _tu_features(
    node_labels: list[Path], ends: Tensor, num_nodes: int, features: Features
) -> tuple[Tensor, tuple[str, ...]]:
    if features == "constant":
        return torch.ones(num_nodes, 1), ("one",)
    for path in node_labels:
        values = _integers(path)
        if values.numel() != num_nodes:
            wrong = f"{values.numel()} labels for {num_nodes} nodes"
            raise InputError(f"{path}: {wrong}; fetch the files again")
    if features == "degrees":
        values = torch.bincount(canonical_edges(ends, num_nodes)[0][1], minlength=num_nodes)
    classes, index = values.unique(return_inverse=True)
    kind = features.removesuffix("s")
    return one_hot(index, classes.numel()).float(), tuple(f"{kind}_{c}" for c in classes.tolist())


def _folds(folder: Path, num_graphs: int) -> tuple[tuple[Tensor, Tensor], ...] | None:
    """The published folds, if all twenty files are there."""
    files = [(folder / f"train_idx-{i}.txt", folder / f"test_idx-{i}.txt") for i in range(1, 11)]
    if not all(path.is_file() for pair in files for path in pair):
        return None
    folds = tuple((_integers(train), _integers(test)) for train, test in files)
    for (_, path), fold in zip(files, folds, strict=True):
        indices = torch.cat(fold)
        if int(indices.min()) < 0 or int(indices.max()) >= num_graphs:
            raise InputError(f"{path}: an index is outside 0 to {num_graphs - 1}; correct the fold")
        if indices.unique().numel() != indices.numel():
            raise InputError(f"{path}: a graph is twice in the fold; correct the fold")
    return folds
