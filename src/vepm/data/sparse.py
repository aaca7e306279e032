"""Features that would not fit as a full table: kept as their non-zero entries."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vepm.errors import InputError

MOST_DENSE_ENTRIES = 10_000_000
"""Up to so many entries, zeros included, a table is simpler and no burden."""
MOST_COLUMNS = 2**22
"""A weight matrix has a row for each: beyond this it is the features that are at fault."""


def is_sparse(x: Any) -> bool:
    """Whether features are kept as their non-zero entries."""
    return isinstance(x, Tensor) and x.layout != torch.strided


def from_scipy(matrix: Any) -> Tensor:
    """A SciPy matrix as a sparse tensor, repeated entries added up."""
    coo = matrix.tocoo()
    where = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    values = torch.from_numpy(coo.data.astype(np.float64))
    return torch.sparse_coo_tensor(where, values, coo.shape, check_invariants=True).coalesce()


def kept_sparse(x: Tensor) -> Tensor:
    """Sparse features as coalesced entries, or as a table where that is no burden."""
    if x.numel() <= MOST_DENSE_ENTRIES:
        return x.to_dense()
    return x.to_sparse_coo().coalesce() if x.layout != torch.sparse_coo else x.coalesce()


def refuse_sparse(x: Any, what: str) -> None:
    """Refuse features that only one graph's nodes can have.

    Raises:
        InputError: if they are sparse.
    """
    if is_sparse(x):
        raise InputError(
            f"{what}: {x.size(0)} rows of {x.size(1)} sparse features are too many for a full "
            "table, which this needs; take fewer columns, such as the leading singular vectors"
        )
