"""Node features that are mostly zeros, kept so: bags of words, one-hot labels."""

from typing import Any

import torch
from torch import Tensor, nn

from vepm.nn.patterns import csr_matrix

SPARSE_BELOW = 0.25
"""Share of non-zeros under which sparse products are faster than dense ones."""


class SparseFeatures:
    """A fixed sparse matrix [N, F] that multiplies dense weights in both directions.

    Args:
        row_pointer: Where each row begins among the values [N + 1].
        columns: Column of each value [nnz].
        values: The non-zeros, row by row [nnz].
        num_columns: Width F.

    Example:
        >>> x = SparseFeatures.from_dense(torch.eye(3))
        >>> x @ torch.arange(3.0)[:, None]
        tensor([[0.],
                [1.],
                [2.]])
    """

    def __init__(
        self, row_pointer: Tensor, columns: Tensor, values: Tensor, num_columns: int
    ) -> None:
        self.row_pointer, self.columns, self.values = row_pointer, columns, values
        self.shape = (row_pointer.numel() - 1, num_columns)
        counts = row_pointer.diff()
        self.rows = torch.arange(self.shape[0], device=values.device).repeat_interleave(counts)
        # The transpose in CSR: the same values in the order of their columns.
        self.column_order = torch.argsort(columns, stable=True)
        self.column_pointer = nn.functional.pad(
            torch.bincount(columns, minlength=num_columns).cumsum(0), (1, 0)
        )

    @classmethod
    def from_dense(cls, x: Tensor) -> "SparseFeatures":
        """Drop the zeros of a dense matrix."""
        rows, columns = x.nonzero(as_tuple=True)
        counts = torch.bincount(rows, minlength=x.size(0))
        return cls(
            nn.functional.pad(counts.cumsum(0), (1, 0)), columns, x[rows, columns], x.size(1)
        )

    def size(self, dim: int) -> int:
        """Number of rows (0) or columns (1)."""
        return self.shape[dim]

    @property
    def device(self) -> torch.device:
        """Where the values are."""
        return self.values.device

    def with_values(self, values: Tensor) -> "SparseFeatures":
        """The same pattern with other values."""
        other = object.__new__(SparseFeatures)
        other.__dict__ |= self.__dict__ | {"values": values}
        return other

    def row_sum(self, values: Tensor) -> Tensor:
        """Sum over each row of one number per non-zero [N, 1]."""
        return values.new_zeros(self.shape[0]).index_add(0, self.rows, values)[:, None]

    def __matmul__(self, weight: Tensor) -> Tensor:
        return _SparseProduct.apply(self, weight)  # type: ignore[no-untyped-call]


Features = Tensor | SparseFeatures


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: SparseFeatures, weight: Tensor) -> Tensor:
        ctx.x = x
        if x.values.numel() == 0 or weight.numel() == 0:
            return weight.new_zeros(x.shape[0], weight.size(1))
        return csr_matrix(x.row_pointer, x.columns, x.values, x.shape) @ weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        x = ctx.x
        if x.values.numel() == 0 or grad.numel() == 0:
            return None, grad.new_zeros(x.shape[1], grad.size(1))
        order = x.column_order
        transposed = csr_matrix(x.column_pointer, x.rows[order], x.values[order], x.shape[::-1])
        return None, transposed @ grad.contiguous()


def compact(x: Tensor) -> Features:
    """Keep mostly-zero features sparse, others as they are."""
    if x.numel() == 0 or int(x.count_nonzero()) >= SPARSE_BELOW * x.numel():
        return x
    return SparseFeatures.from_dense(x)


def normalize_rows(x: Features, norm: str) -> Features:
    """Divide each row by its ``"l1"`` or ``"l2"`` norm; ``"none"`` leaves it."""
    if norm == "none":
        return x
    power = 1.0 if norm == "l1" else 2.0
    if isinstance(x, Tensor):
        return nn.functional.normalize(x, p=power, dim=1)
    length = x.row_sum(x.values.abs().pow(power)).pow(1 / power).clamp_min(1e-12)
    return x.with_values(x.values / length[x.rows, 0])


def dropout(x: Features, probability: float, training: bool) -> Features:
    """Dropout that leaves zeros alone."""
    if isinstance(x, Tensor):
        return nn.functional.dropout(x, probability, training)
    return x.with_values(nn.functional.dropout(x.values, probability, training))


def row_mass(x: Features) -> Tensor:
    """Sum of absolute values of each row [N, 1]."""
    if isinstance(x, Tensor):
        return x.abs().sum(1, keepdim=True)
    return x.row_sum(x.values.abs())


def dense(x: Features) -> Tensor:
    """All entries, zeros included."""
    if isinstance(x, Tensor):
        return x
    out = x.values.new_zeros(x.shape)
    out[x.rows, x.columns] = x.values
    return out
