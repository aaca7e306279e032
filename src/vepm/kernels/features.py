"""Node features that are mostly zeros, kept so: bags of words, one-hot labels."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vepm.kernels.patterns import apply, index_type, multiply

SPARSE_BELOW = 0.25  # share of non-zeros under which sparse products are faster than dense ones
MOST_DENSE = 2**28  # numbers up to which a GPU, much faster with dense matrices, keeps zeros
STRIP = 2048  # rows of a dense matrix of usual width that a core's cache holds


class SparseFeatures:
    """A fixed sparse matrix [N, F] in CSR that multiplies dense weights in both directions.

    Entries are given by row and column, row after row; :func:`compact` takes a whole matrix.

    Example:
        >>> x = compact(torch.eye(5))
        >>> (x @ torch.arange(5.0)[:, None]).flatten()
        tensor([0., 1., 2., 3., 4.])
    """

    def __init__(self, rows: Tensor, columns: Tensor, values: Tensor, shape: Sequence[int]) -> None:
        num_rows, num_columns = self.shape = shape[0], shape[1]
        self.rows, self.values = rows, values
        self.normalised: dict[str, SparseFeatures] = {}
        index = index_type(max(values.numel(), num_rows + 1, num_columns + 1))
        counts = torch.bincount(rows, minlength=num_rows)
        self.row_pointer = nn.functional.pad(counts.cumsum(0), (1, 0)).to(index)
        self.columns = columns.to(index)
        # The transpose is cut into strips of rows that fit a cache, one below the other: a product
        # with a tall matrix reads that at random within a strip, and the strips are added up. A
        # strip must hold several values of each column, or its own sums cost more than it saves.
        worth = rows.numel() // (8 * max(num_columns, 1))
        strips = max(1, min(num_rows // STRIP, worth)) if rows.device.type == "cpu" else 1
        index = index_type(max(rows.numel(), num_rows, strips * num_columns))
        place = rows * strips // max(num_rows, 1) * num_columns + columns
        order = torch.argsort(place, stable=True)
        counts = torch.bincount(place, minlength=strips * num_columns)
        pointer = nn.functional.pad(counts.cumsum(0), (1, 0)).to(index)
        shape = (strips * num_columns, num_rows)
        self.transpose = pointer, rows[order].to(index), order.to(index), shape

    def size(self, dim: int) -> int:
        """Number of rows (0) or columns (1)."""
        return self.shape[dim]

    def with_values(self, values: Tensor) -> "SparseFeatures":
        """The same pattern with other values."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"values": values, "normalised": {}}
        return other

    def __matmul__(self, weight: Tensor) -> Tensor:
        return apply(_SparseProduct, self, weight)


Features = Tensor | SparseFeatures


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: SparseFeatures, weight: Tensor) -> Tensor:
        ctx.x = x
        return multiply(x.row_pointer, x.columns, x.values, x.shape, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        pointer, columns, order, shape = ctx.x.transpose
        values = ctx.x.values.index_select(0, order)
        strips = multiply(pointer, columns, values, shape, grad.contiguous())
        return None, strips.unflatten(0, (-1, ctx.x.shape[1])).sum(0)


def compact(x: Tensor) -> Features:
    """Keep mostly-zero features sparse where that is faster, others as they are."""
    if x.layout != torch.sparse_coo:
        many = x.numel() > (0 if x.device.type == "cpu" else MOST_DENSE)
        if not many or int(x.count_nonzero()) >= SPARSE_BELOW * x.numel():
            return x
        x = x.to_sparse()
    rows, columns = x.indices()
    return SparseFeatures(rows, columns, x.values(), x.shape)


def normalize_rows(x: Features, norm: str) -> Features:
    """Divide each row by its ``"l1"`` or ``"l2"`` norm; ``"none"`` leaves it."""
    if norm == "none":
        return x
    power = 1.0 if norm == "l1" else 2.0
    if isinstance(x, Tensor):
        return nn.functional.normalize(x, p=power, dim=1)
    if norm not in x.normalised:
        powers = x.with_values(x.values.abs().pow(power))
        length = row_mass(powers)[:, 0].pow(1 / power).clamp_min(1e-12)
        x.normalised[norm] = x.with_values(x.values / length[x.rows])
    return x.normalised[norm]


def row_mass(x: Features) -> Tensor:
    """Sum of absolute values of each row [N, 1]."""
    if isinstance(x, Tensor):
        return x.abs().sum(1, keepdim=True)
    return x.values.new_zeros(x.shape[0], 1).index_add(0, x.rows, x.values.abs()[:, None])


def dense(x: Features) -> Tensor:
    """All entries, zeros included."""
    if isinstance(x, Tensor):
        return x
    out = x.values.new_zeros(x.shape)
    out[x.rows, x.columns] = x.values
    return out
