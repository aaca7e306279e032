"""Cora, CiteSeer and PubMed, with the public split."""

import hashlib
import logging
import os
import warnings
from pathlib import Path

from torch_geometric.datasets import Planetoid
from torch_geometric.io import read_planetoid_data

from vepm.data.assemble import node_dataset
from vepm.data.checksums import PLANETOID
from vepm.data.dataset import Dataset
from vepm.data.raw import RawFiles
from vepm.errors import InputError

logger = logging.getLogger("vepm")

TRUSTED = "VEPM_TRUSTED_SHA256"
"""Environment variable with the sums of files to open though they are not the published ones."""
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


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
    # The files were pickled by old versions of NumPy and SciPy, which the new ones remark on.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = read_planetoid_data(str(raw), name)
    num_classes = int(data.y.max()) + 1
    return node_dataset(
        data,
        name=name,
        source=f"Planetoid, public split, {raw}",
        class_names=[str(c) for c in range(num_classes)],
    )


def _verify(path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest == PLANETOID[path.name]:
        return
    if digest in os.environ.get(TRUSTED, "").lower().replace(",", " ").split():
        logger.warning("%s: not the published file, opened because %s names it", path, TRUSTED)
        return
    raise InputError(
        f"{path}: is not the published file (expected SHA-256 {PLANETOID[path.name][:12]}...) and, "
        "being a pickle that could run any code, is not opened; remove it and fetch it again, or, "
        f"if you made it yourself, put {digest} into the environment variable {TRUSTED}"
    )
