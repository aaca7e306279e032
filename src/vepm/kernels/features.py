"""Node features that are mostly zeros, kept so: bags of words, one-hot labels."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vepm.kernels.patterns import apply, csr_matrix, index_type, multiply

SPARSE_BELOW = 0.25  # share of non-zeros under which sparse products are faster than dense ones
MOST_DENSE = 2**28
"""Numbers up to which a GPU, which multiplies dense matrices much faster, keeps zeros too."""
MANY_DRAWS = 2**21  # numbers beyond which dropout spends much of a step on drawing
STRIP = 2048  # rows of a dense matrix of usual width that a core's cache holds


class SparseFeatures:
    """A fixed sparse matrix [N, F] in CSR that multiplies dense weights in both directions.

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
        index = index_type(max(values.numel(), row_pointer.numel(), num_columns))
        self.row_pointer, self.columns = row_pointer.to(index), columns.to(index)
        self.values = values
        self.shape = (row_pointer.numel() - 1, num_columns)
        counts = row_pointer.diff()
        self.rows = torch.arange(self.shape[0], device=values.device).repeat_interleave(counts)
        self.transpose = _Transpose(self.rows, columns.long(), self.shape)
        self._normalised: dict[str, SparseFeatures] = {}

    @classmethod
    def from_dense(cls, x: Tensor) -> "SparseFeatures":
        """Drop the zeros of a dense matrix."""
        rows, columns = x.nonzero(as_tuple=True)
        return cls.from_entries(rows, columns, x[rows, columns], x.shape)

    @classmethod
    def from_entries(
        cls, rows: Tensor, columns: Tensor, values: Tensor, shape: Sequence[int]
    ) -> "SparseFeatures":
        """Entries by row and column, row after row."""
        counts = torch.bincount(rows, minlength=shape[0])
        return cls(nn.functional.pad(counts.cumsum(0), (1, 0)), columns, values, shape[1])

    def size(self, dim: int) -> int:
        """Number of rows (0) or columns (1)."""
        return self.shape[dim]

    @property
    def device(self) -> torch.device:
        """Where the values are."""
        return self.values.device

    def with_values(self, values: Tensor) -> "SparseFeatures":
        """The same pattern with other values."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"values": values, "_normalised": {}}
        return other

    def normalised(self, norm: str) -> "SparseFeatures":
        """Rows of length one by the ``"l1"`` or ``"l2"`` norm, computed once."""
        if norm not in self._normalised:
            power = 1.0 if norm == "l1" else 2.0
            length = self.row_sum(self.values.abs().pow(power)).pow(1 / power).clamp_min(1e-12)
            self._normalised[norm] = self.with_values(self.values / length[self.rows, 0])
        return self._normalised[norm]

    def row_sum(self, values: Tensor) -> Tensor:
        """Sum over each row of one number per non-zero [N, 1]."""
        return values.new_zeros(self.shape[0]).index_add(0, self.rows, values)[:, None]

    def __matmul__(self, weight: Tensor) -> Tensor:
        return apply(_SparseProduct, self, weight)


class _Transpose:
    """The transpose of a sparse matrix, cut into strips of rows that fit a cache.

    The product with a tall matrix reads that at random within a strip; the strips' products are
    added up.
    """

    def __init__(self, rows: Tensor, columns: Tensor, shape: tuple[int, int]) -> None:
        num_rows, self.num_columns = shape
        # A strip must hold several values of each column, or its own sums cost more than it saves.
        worth = rows.numel() // (8 * max(self.num_columns, 1))
        strips = max(1, min(num_rows // STRIP, worth)) if rows.device.type == "cpu" else 1
        index = index_type(max(rows.numel(), num_rows, strips * self.num_columns))
        place = rows * strips // max(num_rows, 1) * self.num_columns + columns
        order = torch.argsort(place, stable=True)
        self.order, self.columns = order.to(index), rows[order].to(index)
        self.shape = (strips * self.num_columns, num_rows)
        counts = torch.bincount(place, minlength=self.shape[0])
        self.row_pointer = nn.functional.pad(counts.cumsum(0), (1, 0)).to(index)

    def multiply(self, values: Tensor, dense: Tensor) -> Tensor:
        """The transpose of the matrix with these values, times a dense one."""
        values = values.index_select(0, self.order)
        matrix = csr_matrix(self.row_pointer, self.columns, values, self.shape)
        return multiply(matrix, dense).view(-1, self.num_columns, dense.size(1)).sum(0)


Features = Tensor | SparseFeatures


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: SparseFeatures, weight: Tensor) -> Tensor:
        ctx.x = x
        if x.values.numel() == 0 or weight.numel() == 0:
            return weight.new_zeros(x.shape[0], weight.size(1))
        return multiply(csr_matrix(x.row_pointer, x.columns, x.values, x.shape), weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        x = ctx.x
        if x.values.numel() == 0 or grad.numel() == 0:
            return None, grad.new_zeros(x.shape[1], grad.size(1))
        return None, x.transpose.multiply(x.values, grad.contiguous())


def compact(x: Tensor) -> Features:
    """Keep mostly-zero features sparse where that pays, others as they are."""
    if x.layout == torch.sparse_coo:
        rows, columns = x.indices()
        return SparseFeatures.from_entries(rows, columns, x.values(), x.shape)
    pays = x.numel() and _sparse_pays(int(x.count_nonzero()), x.numel(), x.device.type)
    return SparseFeatures.from_dense(x) if pays else x


def _sparse_pays(non_zeros: int, numbers: int, device: str) -> bool:
    return non_zeros < SPARSE_BELOW * numbers and (device == "cpu" or numbers > MOST_DENSE)


def normalize_rows(x: Features, norm: str) -> Features:
    """Divide each row by its ``"l1"`` or ``"l2"`` norm; ``"none"`` leaves it."""
    if norm == "none":
        return x
    if isinstance(x, Tensor):
        return nn.functional.normalize(x, p=1.0 if norm == "l1" else 2.0, dim=1)
    return x.normalised(norm)


def dropout(x: Features, probability: float, training: bool) -> Features:
    """Dropout that leaves zeros alone."""
    if isinstance(x, Tensor):
        return _dropout(x, probability, training)
    return x.with_values(_dropout(x.values, probability, training))


def drop_rows(parts: Sequence[Features], probability: float, training: bool) -> Sequence[Features]:
    """Dropout of whole rows, the same ones in every part."""
    if not training or probability == 0:
        return parts
    first = parts[0]
    values = first if isinstance(first, Tensor) else first.values
    kept = _dropout(values.new_ones(first.size(0), 1), probability, training)
    return [
        p * kept if isinstance(p, Tensor) else p.with_values(p.values * kept[p.rows, 0])
        for p in parts
    ]


def _dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    if not training or probability == 0:
        return x
    if x.device.type != "cpu" or probability == 1:
        return nn.functional.dropout(x, probability)
    large = x.numel() > MANY_DRAWS and x.is_contiguous()
    # Runs under vmap draw their own numbers.
    if large and not torch._C._functorch.is_batchedtensor(x):
        return _dropout_by_bits(x, probability)
    # A CPU draws uniform numbers several times faster than coin tosses.
    kept = torch.rand_like(x) >= probability
    return x * kept.to(x.dtype).mul_(1 / (1 - probability))


def _dropout_by_bits(x: Tensor, probability: float) -> Tensor:
    """Dropout in which one draw of 64 bits decides about four numbers.

    The probability is rounded to 16 bits; the factor makes up for that.
    """
    levels = 2**16
    dropped = min(round(probability * levels), levels - 1)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - levels // 2
    return (x * kept).mul_(levels / (levels - dropped))


class Dropout(nn.Dropout):
    """Dropout as a module."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries of a tensor in training."""
        return _dropout(x, self.p, self.training)


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
