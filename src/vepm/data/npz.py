"""Graphs as .npz archives of a sparse adjacency matrix."""

import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from vepm.data.arrays import from_matrices
from vepm.data.dataset import Dataset
from vepm.errors import InputError

_PARTS = ("data", "indices", "indptr", "shape")
_REMEDY = "write it again with numpy.savez"


def read_npz(path: Path, *, strict: bool, class_names: Sequence[str] | None) -> Dataset:
    """An archive with ``adj_data``, ``adj_indices``, ``adj_indptr`` and ``adj_shape`` (CSR).

    Features are ``attr_*`` likewise or a dense ``attr_matrix``; labels are ``labels`` [N]. Names
    such as ``adj_matrix.data`` do as well, and sparse ``labels.*`` [N, C], for communities that
    overlap, are kept as ``memberships``. Object arrays are not read: they are pickles.
    """
    arrays = _Archive(path)
    adjacency = arrays.matrix("adj")
    if adjacency is None:
        raise InputError(
            f"{path}: array 'adj_data' is missing (found: {', '.join(arrays.names)}); "
            "give the adjacency as adj_data, adj_indices, adj_indptr and adj_shape"
        )
    dataset = from_matrices(
        arrays.matrix("attr"),
        adjacency,
        arrays.get("labels"),
        name=path.stem,
        source=str(path),
        class_names=class_names,
        strict=strict,
    )
    overlapping = arrays.matrix("labels") if "labels" not in arrays.names else None
    if overlapping is not None:
        if overlapping.shape[0] != dataset.graphs[0].x.size(0):
            raise InputError(f"{path}: sparse labels have {overlapping.shape[0]} rows; {_REMEDY}")
        dataset.graphs[0].memberships = torch.from_numpy(overlapping.toarray()).float()
    return dataset


class _Archive:
    """The arrays of an .npz file, with every failure to read one named."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # In memory, because arrays are read one by one and no file should stay open.
        content = io.BytesIO(path.read_bytes())
        self._arrays = self._guard(lambda: np.load(content, allow_pickle=False))
        if not isinstance(self._arrays, np.lib.npyio.NpzFile):
            raise InputError(f"{path}: holds one array, not an archive; {_REMEDY}")
        self.names = list(self._arrays.files)

    def get(self, name: str) -> Any:
        """An array by name; None if there is none."""
        return self._guard(lambda: self._arrays[name]) if name in self.names else None

    def matrix(self, name: str) -> Any:
        """A matrix stored in CSR parts or, as ``name_matrix``, dense; None if there is none."""
        for prefix in (f"{name}_", f"{name}.", f"{name}_matrix."):
            if f"{prefix}data" in self.names:
                return self._sparse(prefix)
        return self.get(f"{name}_matrix")

    def _sparse(self, prefix: str) -> Any:
        missing = [prefix + part for part in _PARTS if prefix + part not in self.names]
        if missing:
            raise InputError(f"{self.path}: array '{missing[0]}' is missing; {_REMEDY}")
        data, indices, indptr, shape = (self.get(prefix + part) for part in _PARTS)

        def build() -> Any:
            rows, columns = (int(size) for size in shape)
            matrix = sp.csr_matrix((data, indices, indptr), shape=(rows, columns))
            matrix.check_format(full_check=True)
            return matrix

        return self._guard(build)

    def _guard(self, action: Any) -> Any:
        try:
            return action()
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{self.path}: truncated or corrupt ({error}); {_REMEDY}") from None
        except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
            line = " ".join(str(error).split())
            raise InputError(f"{self.path}: cannot be used ({line}); {_REMEDY}") from None
