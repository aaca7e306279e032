"""Graphs as .npz archives of a sparse adjacency matrix."""

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Sequence
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
_LARGEST = 2**34
_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


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
        self._guard(lambda: _check_sizes(content))
        self._arrays = self._guard(lambda: np.load(content, allow_pickle=False))
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
            if shape.dtype.kind not in "iu":
                raise ValueError(f"{prefix}shape is {shape.dtype}, not integers")
            rows, columns = (int(size) for size in shape)
            _check_positions(indices, indptr, rows, columns)
            matrix = sp.csr_matrix((data, indices, indptr), shape=(rows, columns))
            matrix.check_format(full_check=True)
            return matrix

        return self._guard(build)

    def _guard(self, action: Any) -> Any:
        try:
            return action()
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
            # A RuntimeError is an archive that is encrypted or packed in an unknown way.
            raise InputError(f"{self.path}: truncated or corrupt ({error}); {_REMEDY}") from None
        except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
            line = " ".join(str(error).split())
            raise InputError(f"{self.path}: cannot be used ({line}); {_REMEDY}") from None


def _check_positions(indices: Any, indptr: Any, rows: int, columns: int) -> None:
    """Refuse positions outside the matrix.

    SciPy checks them by differences, which wrap around for numbers near the largest, and then
    writes where they point.
    """
    for part in (indices, indptr):
        if part.dtype.kind not in "iu" or part.ndim != 1:
            raise ValueError(f"positions are {part.ndim}-dimensional {part.dtype}")
    if len(indptr) != rows + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError("row pointers do not add up")
    if (indptr[1:] < indptr[:-1]).any() or ((indices < 0) | (indices >= columns)).any():
        raise ValueError("positions are outside the matrix")


def _check_sizes(content: io.BytesIO) -> None:
    """Refuse arrays that claim more than their entry holds, or unpack to more than memory may."""
    if not zipfile.is_zipfile(content):
        raise ValueError("not an archive of arrays")
    with zipfile.ZipFile(content) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > _LARGEST:
            raise ValueError(f"unpacks to more than {_LARGEST} bytes")
        for entry in archive.infolist():
            with archive.open(entry) as file:
                version = np.lib.format.read_magic(file)
                shape, _, dtype = _HEADERS[version](file)
                claimed = math.prod(shape) * dtype.itemsize
                if not dtype.hasobject and claimed > entry.file_size:
                    raise ValueError(f"{entry.filename} claims {claimed} bytes and has fewer")
    content.seek(0)
