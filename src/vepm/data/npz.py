"""Graphs as .npz archives of arrays."""

import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from vepm.data.build import Parts, matrix_parts
from vepm.data.canonical import Kinds, kind_table
from vepm.data.columns import ReadOptions
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

_SMALL = 2**26
_MOST_COMPRESSION = 100  # of archives that unpack to more bytes than are small
_MOST_MEMBERSHIPS = 10**8


def read_npz(path: Path, options: ReadOptions) -> Parts:
    """An archive of arrays, in any of the layouts that :func:`vepm.data.read` names, and others.

    Sparse ``labels.*`` [N, C] are ``memberships``, masks of several splits ``train_masks`` [R, N];
    ``edges`` [M, 2], ``node_features`` and ``node_labels`` are another way to store a graph.
    """
    if not path.is_file():
        raise InputError(f"{path}: is not a regular file; save its content to one")
    try:
        return _Archive(path).parts(options)
    except InputError:
        raise
    except Exception as error:  # a broken header can fail in any part of Python's parser
        line = " ".join(str(error).split())[:200] or type(error).__name__
        wrong = f"truncated, corrupt or cannot be used ({line})"
        raise InputError(f"{path}: {wrong}; write it again with numpy.savez") from None


class _Archive:
    """The arrays of a file, by name; records which of them were read."""

    def __init__(self, path: Path) -> None:
        # In memory, because arrays are read one by one and no file should stay open.
        self.arrays = np.load(check_size(io.BytesIO(path.read_bytes())), allow_pickle=False)
        self.path, self.taken = path, {"format", "_is_array"}

    def __getitem__(self, name: str) -> Any:
        self.taken.add(name)
        return self.arrays.get(name)

    def parts(self, options: ReadOptions) -> Parts:
        """What the archive holds."""
        listed = {"edges", "node_labels"} <= set(self.arrays)
        label = options.label or ("node_labels" if listed else "labels")
        if options.label and label not in self.arrays:
            raise InputError(f"{self.path}: there is no array '{label}' with labels")
        adjacency, directed = self._adjacency(listed), self["directed"]
        if directed is not None and (directed.dtype.kind not in "biu" or directed.size != 1):
            raise ValueError(f"directed is {directed.dtype} {list(directed.shape)}")
        return matrix_parts(
            self["node_features"] if listed else self._matrix("attr"),
            adjacency,
            self[label],
            name=self.path.stem,
            source=str(self.path),
            options=options,
            one_way=listed,
            masks={name: self._mask(name) for name in MASK_NAMES},
            memberships=None if label in self.arrays else self._memberships(adjacency.shape[0]),
            kinds=self._kinds(adjacency),
            directed=None if directed is None else bool(directed.item()),
            unused=[f"array '{name}'" for name in self.arrays if name not in self.taken],
        )

    def _adjacency(self, listed: bool) -> Any:
        if listed:
            edges, count = self["edges"], len(self["node_labels"])
            if edges.dtype.kind not in "iu" or edges.ndim != 2 or edges.shape[1] != 2:
                raise ValueError(f"edges are {edges.dtype} {list(edges.shape)}")
            return sp.coo_array((np.ones(len(edges), np.float32), edges.T), shape=(count, count))
        # What scipy.sparse.save_npz writes are parts of one matrix, whose names have no prefix.
        if "format" in self.arrays and (layout := str(self.arrays["format"].astype(str))) != "csr":
            raise InputError(f"{self.path}: holds a {layout} matrix; save it after .tocsr()")
        matrix = self._csr("") if "format" in self.arrays else self._matrix("adj")
        if matrix is None:
            found = f"array 'adj_data' is missing (found: {', '.join(self.arrays)[:200]})"
            remedy = "give the adjacency as adj_data, adj_indices, adj_indptr and adj_shape"
            raise InputError(f"{self.path}: {found}; {remedy}")
        return matrix

    def _matrix(self, name: str) -> Any:
        """A matrix stored in CSR parts or, as ``name_matrix``, dense; None if there is none."""
        for prefix in (f"{name}_", f"{name}.", f"{name}_matrix."):
            if f"{prefix}data" in self.arrays:
                return self._csr(prefix)
        return self[f"{name}_matrix"]

    def _csr(self, prefix: str) -> Any:
        names = [prefix + part for part in ("data", "indices", "indptr", "shape")]
        for name in names:
            if name not in self.arrays:
                raise ValueError(f"array '{name}' is missing")
        data, indices, indptr, shape = (self[name] for name in names)
        rows, columns = map(int, shape)
        integers = {part.dtype.kind for part in (indices, indptr, shape)} <= {"i", "u"}
        if data.dtype.kind not in "biuf" or not integers:
            raise ValueError(f"values are {data.dtype}, positions {indices.dtype}, {indptr.dtype}")
        # SciPy checks positions by differences, which wrap around for numbers near the largest, and
        # then writes where they point.
        if indptr.shape != (rows + 1,) or indptr[0] != 0 or indptr[-1] != len(indices):
            raise ValueError("row pointers do not add up")
        if (indptr[1:] < indptr[:-1]).any() or ((indices < 0) | (indices >= columns)).any():
            raise ValueError("positions are outside the matrix")
        return sp.csr_matrix((data.astype(np.float64), indices, indptr), shape=(rows, columns))

    def _mask(self, name: str) -> Any:
        one, several = self[name], self[f"{name}s"]
        mask = one if several is None else np.transpose(several)
        if mask is not None and mask.dtype.kind not in "biu":
            raise ValueError(f"{name} holds {mask.dtype}; True and False are needed")
        return None if mask is None else torch.from_numpy(np.ascontiguousarray(mask, np.int64))

    def _memberships(self, count: int) -> torch.Tensor | None:
        matrix = self._matrix("labels")
        if matrix is None:
            return None
        if matrix.shape[0] != count or math.prod(matrix.shape) > _MOST_MEMBERSHIPS:
            needed = f"{count} rows and at most {_MOST_MEMBERSHIPS} entries, zeros included"
            raise ValueError(f"sparse labels are {list(matrix.shape)}; give {needed}")
        found = torch.from_numpy(matrix.toarray()).float()
        if not bool((found.isfinite() & (found >= 0)).all()):
            raise ValueError("sparse labels hold negative or infinite entries")
        return found

    def _kinds(self, adjacency: Any) -> Kinds | None:
        kinds, names = self["edge_kind"], self["kind_names"]
        if kinds is None:
            return None
        if kinds.dtype.kind not in "biu" or len(kinds) != getattr(adjacency, "nnz", None):
            found = f"edge_kind is {kinds.dtype} {list(kinds.shape)}"
            raise ValueError(f"{found}; give a bit mask for each of the adj_indices")
        words = None if names is None else [str(name) for name in np.ravel(names)]
        return kind_table(torch.from_numpy(kinds.astype(np.int64)), words, str(self.path))


def check_size(content: io.BytesIO) -> io.BytesIO:
    """An archive, refused if it unpacks to far more than the file."""
    if not zipfile.is_zipfile(content):
        raise ValueError("not an archive of arrays")
    with zipfile.ZipFile(content) as archive:
        total = sum(entry.file_size for entry in archive.infolist())
    if total > (most := max(_SMALL, _MOST_COMPRESSION * len(content.getbuffer()))):
        raise ValueError(f"unpacks to {total} bytes, more than {most}; store zeros sparsely")
    content.seek(0)
    return content
