"""Graphs as .npz archives of arrays."""

import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from vepm.data.build import Parts, ReadOptions
from vepm.data.edges import decode_kinds
from vepm.data.in_memory import matrix_parts
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES

_PARTS = ("data", "indices", "indptr", "shape")
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
    with _guarded(path):
        arrays = _Archive(path)
        listed = {"edges", "node_labels"} <= set(arrays.names)
        adjacency = arrays.adjacency(listed)
        if adjacency is None:
            raise InputError(
                f"{path}: array 'adj_data' is missing (found: {', '.join(arrays.names)[:200]}); "
                "give the adjacency as adj_data, adj_indices, adj_indptr and adj_shape"
            )
        label = options.label or ("node_labels" if listed else "labels")
        if options.label and label not in arrays.names:
            raise InputError(f"{path}: there is no array '{label}' with labels")
        x = arrays.get("node_features") if listed else arrays.matrix("attr")
        overlapping = None if label in arrays.names else arrays.matrix("labels")
        directed = arrays.get("directed")
        if directed is not None and (directed.dtype.kind not in "biu" or directed.size != 1):
            shape = list(directed.shape)
            raise InputError(f"{path}: directed is {directed.dtype} {shape}; {_REMEDY}")
        fields: dict[str, Any] = {
            "masks": {name: _columns(arrays, name) for name in MASK_NAMES},
            "memberships": _memberships(overlapping, arrays, adjacency.shape[0]),
            "kinds": _kinds(arrays, adjacency),
            "directed": None if directed is None else bool(directed.item()),
        }
        y = arrays.get(label)
    return matrix_parts(
        x,
        adjacency,
        y,
        name=path.stem,
        source=str(path),
        options=options,
        one_way=listed,
        unused=[f"array '{name}'" for name in arrays.names if name not in arrays.taken],
        **fields,
    )


def _columns(arrays: "_Archive", name: str) -> Any:
    """A mask [N], or [N, R] from rows of several splits."""
    one, several = arrays.get(name), arrays.get(f"{name}s")
    mask = one if several is None else np.transpose(several)
    if mask is None or mask.dtype.kind in "biu":
        return None if mask is None else torch.from_numpy(np.ascontiguousarray(mask, np.int64))
    raise InputError(f"{arrays.path}: {name} holds {mask.dtype}; True and False are needed")


def _memberships(matrix: Any, arrays: "_Archive", count: int) -> torch.Tensor | None:
    if matrix is None:
        return None
    if matrix.shape[0] != count:
        raise InputError(f"{arrays.path}: sparse labels have {matrix.shape[0]} rows; {_REMEDY}")
    if math.prod(matrix.shape) > _MOST_MEMBERSHIPS:
        raise InputError(
            f"{arrays.path}: sparse labels are {list(matrix.shape)}; at most {_MOST_MEMBERSHIPS} "
            "entries, zeros included, can be kept"
        )
    found = torch.from_numpy(np.asarray(matrix.todense())).float()
    if not bool((found.isfinite() & (found >= 0)).all()):
        wrong = "sparse labels hold negative or infinite entries"
        raise InputError(f"{arrays.path}: {wrong}; give 0 and 1")
    return found


def _kinds(arrays: "_Archive", adjacency: Any) -> tuple[torch.Tensor, tuple[str, ...]] | None:
    kinds, names = arrays.get("edge_kind"), arrays.get("kind_names")
    if kinds is None:
        return None
    sparse: bool = sp.issparse(adjacency)
    if kinds.dtype.kind not in "biu" or not sparse:
        found = f"edge_kind holds {kinds.dtype}"
        raise InputError(f"{arrays.path}: {found}; give a bit mask per adj_indices")
    table = torch.from_numpy(kinds.astype(np.int64) if kinds.ndim == 1 else kinds.astype(bool))
    words = None if names is None else [str(name) for name in np.ravel(names)]
    return decode_kinds(table, adjacency.nnz, words, str(arrays.path))


@contextmanager
def _guarded(path: Path) -> Iterator[None]:
    """Name every failure to read arrays."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # a broken header can fail in any part of Python's parser
        line = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{path}: truncated, corrupt or cannot be used ({line}); {_REMEDY}"
        ) from None


class _Archive:
    """The arrays of an .npz file."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(f"{path}: is no plain file; save what it gives to one")
        self.path = path
        self.taken: set[str] = set()
        # In memory, because arrays are read one by one and no file should stay open.
        content = io.BytesIO(path.read_bytes())
        _check_size(content)
        self._arrays = np.load(content, allow_pickle=False)
        self.names = list(self._arrays.files)

    def get(self, name: str) -> Any:
        """An array by name; None if there is none."""
        self.taken.add(name)
        return self._arrays[name] if name in self.names else None

    def adjacency(self, listed: bool) -> Any:
        """The adjacency matrix, perhaps stored as a list of edges; None if there is none."""
        if "format" in self.names:
            return self._scipy()
        if not listed:
            return self.matrix("adj")
        edges, count = self.get("edges"), len(self.get("node_labels"))
        if edges.dtype.kind not in "iu" or edges.ndim != 2 or edges.shape[1] != 2:
            raise InputError(f"{self.path}: edges are {edges.dtype} {list(edges.shape)}; {_REMEDY}")
        ones = np.ones(len(edges), dtype=np.float32)
        return sp.coo_array((ones, edges.T), shape=(count, count))

    def matrix(self, name: str) -> Any:
        """A matrix stored in CSR parts or, as ``name_matrix``, dense; None if there is none."""
        for prefix in (f"{name}_", f"{name}.", f"{name}_matrix."):
            if f"{prefix}data" in self.names:
                return self._sparse(prefix)
        return self.get(f"{name}_matrix")

    def _scipy(self) -> Any:
        """A matrix that ``scipy.sparse.save_npz`` wrote."""
        kind = self.get("format").item()
        kind = kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind)
        if kind not in ("csr", "csc", "coo"):
            raise InputError(f"{self.path}: holds a {kind[:20]} matrix; save it after .tocsr()")
        self.get("_is_array")
        if kind != "coo":
            return self._sparse("") if kind == "csr" else self._sparse("").T.tocsr()
        row, col, data, shape = (self.get(part) for part in ("row", "col", "data", "shape"))
        return sp.coo_array((_numbers(data), (row, col)), shape=tuple(map(int, shape)))

    def _sparse(self, prefix: str) -> Any:
        missing = [prefix + part for part in _PARTS if prefix + part not in self.names]
        if missing:
            raise InputError(f"{self.path}: array '{missing[0]}' is missing; {_REMEDY}")
        data, indices, indptr, shape = (self.get(prefix + part) for part in _PARTS)
        if shape.dtype.kind not in "iu":
            raise ValueError(f"{prefix}shape is {shape.dtype}, not integers")
        rows, columns = map(int, shape)
        _check_positions(indices, indptr, rows, columns)
        matrix = sp.csr_matrix((_numbers(data), indices, indptr), shape=(rows, columns))
        matrix.check_format(full_check=True)
        return matrix


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
