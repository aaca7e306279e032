"""Graphs as .npz archives of arrays."""

import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from vepm.data.build import Parts, ReadOptions
from vepm.data.edges import Kinds, kinds_from_numbers
from vepm.data.in_memory import matrix_parts
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

_REMEDY = "write it again with numpy.savez"
_SMALL = 2**26
_MOST_COMPRESSION = 100
"""Archives that unpack to more than 64 MiB may be compressed by this factor, not more."""
_MOST_MEMBERSHIPS = 10**8


def read_npz(path: Path, options: ReadOptions) -> Parts:
    """An archive of arrays, in any of the layouts that :func:`vepm.data.read` names.

    Names such as ``adj_matrix.data`` do as well, and sparse ``labels.*`` [N, C], for communities
    that overlap, are kept as ``memberships``. Masks of several splits are ``train_masks`` [R, N].
    ``edges`` [M, 2], ``node_features`` and ``node_labels`` are another way to store the same.
    Object arrays are not read: they are pickles.
    """
    if not path.is_file():
        raise InputError(f"{path}: is no plain file; save what it gives to one")
    try:
        return _Archive(path).parts(options)
    except InputError:
        raise
    except Exception as error:  # a broken header can fail in any part of Python's parser
        line = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{path}: truncated, corrupt or cannot be used ({line}); {_REMEDY}"
        ) from None


class _Archive:
    """The arrays of a file, by name; notes which of them were asked for."""

    def __init__(self, path: Path) -> None:
        # In memory, because arrays are read one by one and no file should stay open.
        self.content = io.BytesIO(path.read_bytes())
        _check_size(self.content)
        self.path, self.taken = path, set[str]()
        self.arrays = np.load(self.content, allow_pickle=False)

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
            found = f"directed is {directed.dtype} {list(directed.shape)}"
            raise InputError(f"{self.path}: {found}; {_REMEDY}")
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
        if "format" in self.arrays:
            return self._scipy()
        if not listed:
            matrix = self._matrix("adj")
            if matrix is None:
                raise InputError(
                    f"{self.path}: array 'adj_data' is missing (found: "
                    f"{', '.join(self.arrays)[:200]}); give the adjacency as adj_data, "
                    "adj_indices, adj_indptr and adj_shape"
                )
            return matrix
        edges, count = self["edges"], len(self["node_labels"])
        if edges.dtype.kind not in "iu" or edges.ndim != 2 or edges.shape[1] != 2:
            raise InputError(f"{self.path}: edges are {edges.dtype} {list(edges.shape)}; {_REMEDY}")
        return sp.coo_array((np.ones(len(edges), np.float32), edges.T), shape=(count, count))

    def _scipy(self) -> Any:
        """A matrix that ``scipy.sparse.save_npz`` wrote."""
        self.taken |= set(self.arrays)
        matrix: Any = sp.load_npz(self.content)
        if matrix.format not in ("csr", "csc", "coo"):
            raise InputError(f"{self.path}: holds a {matrix.format} matrix; save it after .tocsr()")
        if matrix.format != "coo":
            shape = matrix.shape if matrix.format == "csr" else matrix.shape[::-1]
            _check_positions(matrix.indices, matrix.indptr, *shape)
        matrix.data = _numbers(matrix.data)
        return matrix.tocoo()

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
                raise InputError(f"{self.path}: array '{name}' is missing; {_REMEDY}")
        data, indices, indptr, shape = (self[name] for name in names)
        if shape.dtype.kind not in "iu":
            raise ValueError(f"{prefix}shape is {shape.dtype}, not integers")
        rows, columns = map(int, shape)
        _check_positions(indices, indptr, rows, columns)
        return sp.csr_matrix((_numbers(data), indices, indptr), shape=(rows, columns))

    def _mask(self, name: str) -> Any:
        """A mask [N], or [N, R] from rows of several splits."""
        one, several = self[name], self[f"{name}s"]
        mask = one if several is None else np.transpose(several)
        if mask is not None and mask.dtype.kind not in "biu":
            raise InputError(f"{self.path}: {name} holds {mask.dtype}; True and False are needed")
        return None if mask is None else torch.from_numpy(np.ascontiguousarray(mask, np.int64))

    def _memberships(self, count: int) -> torch.Tensor | None:
        matrix = self._matrix("labels")
        if matrix is None:
            return None
        if matrix.shape[0] != count:
            raise InputError(f"{self.path}: sparse labels have {matrix.shape[0]} rows; {_REMEDY}")
        if math.prod(matrix.shape) > _MOST_MEMBERSHIPS:
            raise InputError(
                f"{self.path}: sparse labels are {list(matrix.shape)}; at most "
                f"{_MOST_MEMBERSHIPS} entries, zeros included, can be kept"
            )
        found = torch.from_numpy(np.asarray(matrix.todense())).float()
        if not bool((found.isfinite() & (found >= 0)).all()):
            wrong = "sparse labels hold negative or infinite entries"
            raise InputError(f"{self.path}: {wrong}; give 0 and 1")
        return found

    def _kinds(self, adjacency: Any) -> Kinds | None:
        kinds, names = self["edge_kind"], self["kind_names"]
        if kinds is None:
            return None
        sparse: bool = sp.issparse(adjacency)
        if kinds.dtype.kind not in "biu" or not sparse:
            found = f"edge_kind holds {kinds.dtype}"
            raise InputError(f"{self.path}: {found}; give a bit mask per adj_indices")
        words = None if names is None else [str(name) for name in np.ravel(names)]
        table = torch.from_numpy(kinds.astype(np.int64))
        return kinds_from_numbers(table, adjacency.nnz, words, str(self.path))


def _numbers(data: Any) -> Any:
    """Values in a type that SciPy has kernels for."""
    if data.dtype.kind not in "biuf" or data.ndim != 1:
        raise ValueError(f"values are {data.ndim}-dimensional {data.dtype}")
    odd = data.dtype in (np.float16, np.longdouble) and data.dtype != np.float64
    return data.astype(np.float64) if odd else data


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


def _check_size(content: io.BytesIO) -> None:
    """Refuse an archive that unpacks to far more than the file."""
    if not zipfile.is_zipfile(content):
        raise ValueError("not an archive of arrays")
    most = max(_SMALL, _MOST_COMPRESSION * len(content.getbuffer()))
    with zipfile.ZipFile(content) as archive:
        total = sum(entry.file_size for entry in archive.infolist())
    if total > most:
        raise ValueError(f"unpacks to {total} bytes, more than {most}; store zeros sparsely")
    content.seek(0)
