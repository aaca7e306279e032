"""Feature columns brought to one scale, which a model measures on the graphs it is trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vepm.data.dataset import Dataset
from vepm.data.edges import canonical_edges
from vepm.data.features import NUM_POSITIONS, is_sparse, positions

FEW_COLUMNS = 16
"""With fewer columns that differ between nodes, spectral coordinates stand beside them."""
LARGEST_RATIO = 1000.0
"""A column that differs more than this in size from the others is not one of a bag of words."""
DTYPES = (torch.float64, torch.float64, torch.bool)
_COLUMNS_AT_ONCE = 64
_ROWS_AT_ONCE = 2**16


@dataclass(frozen=True, eq=False)
class Scaling:
    """How the columns of a feature table are brought to one scale.

    There are three kinds of columns, told apart where the model is trained:

    - Dense: more than half of the entries are not zero, and some are neither zero nor one. They
      are standardised to mean 0 and variance 1 and divided by the root of their number, so that
      a row of them has length 1 on average.
    - Kept: all others, such as words, one-hot categories and answers of yes or no. They stay as
      they are, zeros included, but for the length of each row, which becomes 1. A column of
      another size than its like, such as an amount that is mostly zero, counts as dense.
    - Constant: they become zero.

    Spectral coordinates have variance 1 already and are only divided by the root of their number.

    Args:
        center: what is subtracted from each column [F], float64; 0 for kept columns.
        factor: what each column is multiplied by then [F], float64.
        kept: which columns belong to rows of length 1 [F].

    Example:
        >>> import torch
        >>> from vepm.data.scaling import Scaling
        >>> x = torch.tensor([[30e9, 1, 1], [40e9, 1, 0], [50e9, 1, 0]])
        >>> Scaling.of(x)(x)
        tensor([[-1.2247,  0.0000,  1.0000],
                [ 0.0000,  0.0000,  0.0000],
                [ 1.2247,  0.0000,  0.0000]])
    """

    center: Tensor
    factor: Tensor
    kept: Tensor

    @classmethod
    def of(cls, x: Tensor, num_positions: int = 0) -> Self:
        """Measure a table [N, F], dense or sparse, whose last columns may be coordinates."""
        center = torch.zeros(x.size(1), dtype=torch.float64)
        if is_sparse(x):
            factor = torch.full_like(center, _unit(x.values().abs().double()))
            return cls(center, factor, torch.ones(x.size(1), dtype=torch.bool))
        columns = x[:, : x.size(1) - num_positions]
        mean, deviation, largest, binary, share = _measure(columns)
        varied = deviation > 0
        kept = varied & (binary | (share <= 0.5))
        typical = largest[kept].median() if kept.any() else largest.new_ones(())
        kept &= binary | ((largest / typical).log().abs() <= torch.tensor(LARGEST_RATIO).log())
        dense = varied & ~kept
        factor = torch.zeros_like(center)
        width = dense.numel()
        factor[:width][kept] = _unit(largest[kept])
        factor[:width][dense] = 1 / (deviation[dense] * int(dense.sum()) ** 0.5)
        factor[width:] = max(num_positions, 1) ** -0.5
        center[:width][dense] = mean[dense]
        return cls(center, factor, torch.cat([kept, kept.new_zeros(num_positions)]))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], width: int) -> Self:
        """The scaling behind :meth:`tensors`, for tables of so many columns.

        Raises:
            ValueError, KeyError: if the tensors do not fit together.
        """
        found = cls(tensors["center"], tensors["factor"], tensors["kept"])
        for tensor, kind in zip(vars(found).values(), DTYPES, strict=True):
            if tensor.shape != (width,) or tensor.dtype != kind or not tensor.isfinite().all():
                raise ValueError(f"scales are {list(tensor.shape)} {tensor.dtype}")
        return found

    def tensors(self) -> dict[str, Tensor]:
        """The scaling as a file of tensors can hold it."""
        return dict(vars(self))

    def __call__(self, x: Tensor) -> Tensor:
        """A table [N, F] with its columns at the scale of training."""
        if not is_sparse(x):
            return torch.cat([self._rows(rows) for rows in x.split(_ROWS_AT_ONCE)])
        values = x.values().double() * self.factor[x.indices()[1]]
        squares = values.new_zeros(x.size(0)).index_add(0, x.indices()[0], values.square())
        values = values / _nonzero(squares.sqrt())[x.indices()[0]]
        return torch.sparse_coo_tensor(
            x.indices(), values.float(), x.shape, is_coalesced=True, check_invariants=False
        )

    def _rows(self, x: Tensor) -> Tensor:
        # In double precision neither 1e-27 nor 3e19 is lost when it is squared.
        scaled = (x.double() - self.center) * self.factor
        kept = scaled[:, self.kept]
        scaled[:, self.kept] = kept / _nonzero(kept.norm(dim=1, keepdim=True))
        return scaled.float()


def _measure(x: Tensor) -> tuple[Tensor, ...]:
    """Mean, deviation, largest size, whether all is 0 or 1, share of non-zeros, of each column."""
    found = []
    for part in x.split(_COLUMNS_AT_ONCE, dim=1):
        wide = part.double()
        variance, mean = torch.var_mean(wide, dim=0, correction=0)
        low, high = part.aminmax(dim=0)
        # Rounding must not make a constant column look like one that varies.
        deviation = torch.where(low == high, 0.0, variance.sqrt())
        largest = wide.abs().amax(0)
        binary = ((part == 0) | (part == 1)).all(0)
        found.append((mean, deviation, largest, binary, (part != 0).double().mean(0)))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _unit(sizes: Tensor) -> float:
    """One over the largest size to the nearest power of two, which rounds no entry."""
    largest = sizes.max() if sizes.numel() else sizes.new_ones(())
    return float(torch.exp2(-largest.log2().floor())) if largest > 0 else 1.0


def _nonzero(sizes: Tensor) -> Tensor:
    return torch.where(sizes > 0, sizes, 1.0)


_WITH_COORDINATES: WeakKeyDictionary[Dataset, Dataset] = WeakKeyDictionary()


def with_coordinates(dataset: Dataset) -> Dataset:
    """One graph with its spectral coordinates as the last columns, computed once per dataset."""
    if dataset.num_positions:
        return dataset
    if dataset not in _WITH_COORDINATES:
        graph = dataset.graphs[0].clone()
        # Of a directed graph there is only one direction of each edge.
        edge_index, _ = canonical_edges(graph.edge_index, graph.x.size(0))
        found = positions(edge_index, graph.x.size(0))
        graph.x = torch.cat([graph.x, found], dim=1)
        _WITH_COORDINATES[dataset] = replace(
            dataset, graphs=[graph], feature_names=None, num_positions=NUM_POSITIONS
        )
    return _WITH_COORDINATES[dataset]


def needs_coordinates(dataset: Dataset) -> bool:
    """Whether a graph has so few features that its coordinates should stand beside them.

    A graph without features has them from the start. With several graphs they would mean
    something else in each.
    """
    if not dataset.single_graph or dataset.num_positions or is_sparse(dataset.graphs[0].x):
        return False
    x = dataset.graphs[0].x
    return int((x != x[:1]).any(0).sum()) < FEW_COLUMNS
