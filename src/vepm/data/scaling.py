"""What a model measures on its training graphs: scales of columns and weights, coordinates."""

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.canonical import NUM_POSITIONS, canonical_edges, is_sparse, positions
from vepm.data.dataset import Dataset
from vepm.errors import InputError

# With fewer columns that vary between nodes, spectral coordinates are added.
FEW_COLUMNS = {"auto": 16, "coordinates": math.inf}
LARGEST_RATIO = 1000.0  # by which a column of a bag of words may differ in size from the others
MOST_EDGES = 10_000  # edges kept to recognise a graph by; more make it no surer
ALIKE = 0.07  # correlation from which on the features of linked nodes count as alike
HEAVY_TAIL = 100  # largest weight or entry of a column over the median, beyond which logarithms go
_COMPARED_EDGES = 4000
_COMPARED_ROWS = 10_000
_FEWEST_SHARED = 0.5
_COLUMNS_AT_ONCE = 64
_ROWS_AT_ONCE = 2**16


@dataclass(frozen=True, eq=False)
class Scaling:
    """How the columns of a feature table are brought to one scale.

    Dense columns, of whose entries more than half are not zero and some neither zero nor one, are
    standardised and divided by the root of their number: a row of them has length 1 on average.
    All others, such as words and one-hot categories, are kept, but each row of them gets length 1.
    One of a far different size than the rest, such as an amount that is mostly zero, is dense.
    Where the largest entry of a dense column is more than a hundred times the median of all but
    zeros, as among incomes, logarithms are taken first: asinh of entries in units of a small one.
    Constant columns become zero; spectral coordinates are divided by the root of their number.

    Args:
        center: what is subtracted from each column [F], float64; 0 for kept columns.
        factor: what each column is multiplied by then [F], float64.
        kept: which columns belong to rows of length 1 [F].
        unit: of the logarithms that come first [F], float64; 0 for columns taken as they are.
    """

    center: Tensor
    factor: Tensor
    kept: Tensor
    unit: Tensor

    @classmethod
    def of(cls, x: Tensor, num_positions: int = 0) -> Self:
        """Measure a table [N, F] whose last columns may be coordinates."""
        center = torch.zeros(x.size(1), dtype=torch.float64)
        if is_sparse(x):
            factor = torch.full_like(center, _unit(x.values().abs().double()))
            kept = torch.ones(x.size(1), dtype=torch.bool)
            return cls(center, factor, kept, torch.zeros_like(center))
        width = x.size(1) - num_positions
        mean, deviation, largest, binary, share = _measure(x[:, :width])
        varied = deviation > 0
        kept = varied & (binary | (share <= 0.5))
        typical = largest[kept].median() if kept.any() else largest.new_ones(())
        kept &= binary | ((largest / typical).log().abs() <= torch.tensor(LARGEST_RATIO).log())
        dense, factor, unit = varied & ~kept, torch.zeros_like(center), torch.zeros_like(center)
        unit[:width][dense] = _units(x[:, :width][:, dense], largest[dense])
        heavy = unit[:width].nonzero().flatten()
        if heavy.numel():
            mean[heavy], deviation[heavy], *_ = _measure(_in_units(x[:, heavy], unit[heavy]))
        factor[:width][kept] = _unit(largest[kept])
        factor[:width][dense] = 1 / (deviation[dense] * int(dense.sum()) ** 0.5)
        factor[width:] = max(num_positions, 1) ** -0.5
        center[:width][dense] = mean[dense]
        return cls(center, factor, torch.cat([kept, kept.new_zeros(num_positions)]), unit)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], width: int) -> Self:
        """The scaling behind :meth:`tensors`; ValueError if they do not fit."""
        kinds = dict.fromkeys(("center", "factor", "unit"), torch.float64) | {"kept": torch.bool}
        # Files of earlier versions took every column as it is.
        tensors = {"unit": torch.zeros(width, dtype=torch.float64), **tensors}
        if {name: tensor.dtype for name, tensor in tensors.items()} != kinds or not all(
            tensor.shape == (width,) and tensor.isfinite().all() for tensor in tensors.values()
        ):
            raise ValueError("its scales of columns are missing, damaged or not finite")
        return cls(**tensors)

    def tensors(self) -> dict[str, Tensor]:
        """The scaling as named tensors, for a file."""
        return dict(vars(self))

    def __call__(self, x: Tensor) -> Tensor:
        """A table [N, F] with its columns at the scale of training."""
        if not is_sparse(x):
            parts = []
            for rows in x.split(_ROWS_AT_ONCE):
                # In double precision neither 1e-27 nor 3e19 is lost when it is squared.
                scaled = (_in_units(rows, self.unit) - self.center) * self.factor
                kept = scaled[:, self.kept]
                lengths = kept.norm(dim=1, keepdim=True)
                scaled[:, self.kept] = kept / lengths.where(lengths > 0, 1.0)
                parts.append(scaled.float())
            return torch.cat(parts)
        row, column = x.indices()
        values = x.values().double() * self.factor[column]
        squares = values.new_zeros(x.size(0)).index_add(0, row, values.square())
        values = values / squares.sqrt().where(squares > 0, 1.0)[row]
        return torch.sparse_coo_tensor(
            x.indices(), values.float(), x.shape, is_coalesced=True, check_invariants=False
        )


def standardised(dataset: Dataset) -> Dataset:
    """The dataset with numeric columns of mean 0 and deviation 1.

    Unchanged if numbers make up at most half of the sum of all absolute values, as among words.
    """
    x = dataset.features
    if is_sparse(x):
        return dataset
    scale, graphs = Scaling.of(x), [copy.copy(graph) for graph in dataset.graphs]
    numbers, sizes = (scale.factor > 0) & ~scale.kept, x.abs().sum(0, dtype=torch.double)
    if not sizes[numbers].sum() > sizes.sum() / 2:
        return dataset
    found = torch.where(numbers, scale(x) * int(numbers.sum()) ** 0.5, x)
    for graph, part in zip(graphs, found.split([len(graph.x) for graph in graphs]), strict=True):
        graph.x = part
    return replace(dataset, graphs=graphs)


def _measure(x: Tensor) -> tuple[Tensor, ...]:
    """Mean, deviation, largest size, whether all is 0 or 1, share of non-zeros, of each column."""
    found = []
    for part in x.split(_COLUMNS_AT_ONCE, dim=1):
        wide = part.double()
        variance, mean = torch.var_mean(wide, dim=0, correction=0)
        low, high = part.aminmax(dim=0)
        # Rounding must not make a constant column look like one that varies.
        deviation = torch.where(low == high, 0.0, variance.sqrt())
        binary = ((part == 0) | (part == 1)).all(0)
        found.append((mean, deviation, wide.abs().amax(0), binary, (part != 0).double().mean(0)))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _units(x: Tensor, largest: Tensor) -> Tensor:
    """A small size [F] among those of a column with a heavy tail; 0 for other columns [N, F]."""
    levels = torch.tensor([0.1, 0.5], dtype=torch.double)
    quantiles = torch.zeros(2, x.size(1), dtype=torch.double)
    for first in range(0, x.size(1), _COLUMNS_AT_ONCE):
        columns = slice(first, first + _COLUMNS_AT_ONCE)
        sizes = x[:: -(-len(x) // _COMPARED_ROWS), columns].abs().double()
        quantiles[:, columns] = sizes.where(sizes > 0, torch.nan).nanquantile(levels, dim=0)
    small, median = quantiles
    return small.where(largest > HEAVY_TAIL * median, 0.0)


def _in_units(x: Tensor, unit: Tensor) -> Tensor:
    """A table [N, F] in double precision, the columns that have a unit as logarithms."""
    wide, heavy = x.to(torch.double, copy=True), unit.nonzero().flatten()
    wide[:, heavy] = torch.asinh(wide[:, heavy] / unit[heavy])
    return wide


def _unit(sizes: Tensor) -> float:
    """Inverse of the largest size, as a power of two, which rounds no entry."""
    largest = sizes.max() if sizes.numel() else sizes.new_ones(())
    return float(torch.exp2(-largest.log2().floor())) if largest > 0 else 1.0


def edge_weights(graphs: Sequence[Data]) -> Tensor | None:
    """Weights of all edges [E], as the likelihood takes them; None if there are none.

    Counts stay as they are, others are divided by their mean; where few edges would make up most
    of the likelihood, log2(1 + w) comes first, in units of the smallest.
    """
    found = (graph.get("edge_weight") for graph in graphs)
    given = [weight for weight in found if weight is not None]
    if not given:
        return None
    if len(given) < len(graphs):
        raise InputError("some graphs have weights on their edges and some have none")
    weight = torch.cat(given)
    if weight.numel() and weight.max() > HEAVY_TAIL * weight.median():
        weight = torch.log2(1 + weight / weight.min())
    return weight if (weight == weight.round()).all() else weight / weight.mean()


_COORDINATES: WeakKeyDictionary[Dataset, Tensor] = WeakKeyDictionary()


def with_coordinates(dataset: Dataset) -> Dataset:
    """One graph with its spectral coordinates as the last columns, computed once per dataset."""
    if dataset.num_positions:
        return dataset
    graph = dataset.graphs[0].clone()
    if dataset not in _COORDINATES:
        # A directed graph has only one direction of each edge.
        edge_index, _ = canonical_edges(graph.edge_index, graph.x.size(0))
        _COORDINATES[dataset] = positions(edge_index, graph.x.size(0))
    graph.x = torch.cat([graph.x, _COORDINATES[dataset]], dim=1)
    return replace(dataset, graphs=[graph], feature_names=None, num_positions=NUM_POSITIONS)


def assortativity(dataset: Dataset) -> float:
    """Correlation of the scaled features of linked nodes over all columns; 0 if none varies.

    Measured on about 4,000 edges, evenly spaced, or on all if there are fewer.
    """
    graphs, scale = dataset.graphs, Scaling.of(dataset.features, dataset.num_positions)
    every = max(1, sum(graph.edge_index.size(1) for graph in graphs) // _COMPARED_EDGES)
    rows = list[Tensor]()
    for graph in graphs:
        ends = graph.x.index_select(0, graph.edge_index[:, ::every].flatten())
        ends = scale(ends.coalesce()).to_dense() if is_sparse(ends) else scale(ends)
        rows.append(ends.unflatten(0, (2, -1)))
    x = torch.cat(rows, dim=1)
    first, second = x - x.mean((0, 1))
    spread = float(first.square().sum() + second.square().sum())
    return 2 * float((first * second).sum()) / spread if spread > 0 else 0.0


def homophily(y: Tensor, edge_index: Tensor) -> float:
    """How much more often linked nodes share a class than by chance; 1 if they always do.

    Over edges between nodes whose class ``y`` [n] is known, not -1; 0 if there are none, or all are
    of one class. Also known as adjusted homophily, and as Cohen's kappa of both ends.
    """
    first, second = y[edge_index[:, (y >= 0)[edge_index].all(0)]]
    shares = torch.stack([end.bincount(minlength=int(y.max()) + 1) for end in (first, second)])
    chance = (shares.double() / max(first.numel(), 1)).prod(0).sum()
    above = (first == second).double().mean() - chance
    return float((above / (1 - chance)).nan_to_num(0.0))


def needs_coordinates(dataset: Dataset, few: float = FEW_COLUMNS["auto"]) -> bool:
    """Whether a graph has so few features that its coordinates should be added."""
    x = dataset.graphs[0].x
    # Graphs without features have them already; in several graphs they differ in meaning.
    if not dataset.single_graph or dataset.num_positions or is_sparse(x):
        return False
    return int((x != x[:1]).any(0).sum()) < few


@dataclass(frozen=True, eq=False)
class Anchors:
    """Nodes of the graph that a model with few features, or none, was trained on.

    Adding a single node may rotate all coordinates. On another graph the nodes of training keep
    those [N, P] they had; new nodes get theirs by the linear map that fits best on the shared ones.
    """

    coordinates: Tensor
    edges: Tensor  # some of the edges [2, M], which tell whether it is the same graph
    names: tuple[str, ...] | None

    @classmethod
    def of(cls, dataset: Dataset) -> Self | None:
        """The anchors of a dataset; None if its features do not depend on the whole graph."""
        if not dataset.num_positions:
            return None
        graph = dataset.graphs[0]
        once = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
        kept = once[:, :: -(-once.size(1) // MOST_EDGES) or 1]
        return cls(graph.x[:, -dataset.num_positions :], kept, _ids(dataset))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """The anchors behind :meth:`tensors`; ValueError, KeyError, TypeError if they are none."""
        coordinates, edges, names = tensors["coordinates"], tensors["edges"], None
        for tensor, kind, fits in (
            (edges, torch.int32, edges.dim() == 2 == len(edges)),
            (coordinates, torch.float32, coordinates.shape[1:] == (NUM_POSITIONS,)),
        ):
            if tensor.dtype != kind or not fits or not tensor.isfinite().all():
                raise ValueError(f"anchors are {list(tensor.shape)} {tensor.dtype}, or not finite")
        if edges.numel() and not 0 <= edges.min() <= edges.max() < len(coordinates):
            raise ValueError("edges name nodes that have no coordinates")
        if "names" in tensors:
            names = tuple(map(str, json.loads(tensors["names"].numpy().tobytes())))
            if len(set(names)) != len(coordinates):
                raise ValueError(f"{len(set(names))} node ids for {len(coordinates)} nodes")
        return cls(coordinates, edges.long(), names)

    def tensors(self) -> dict[str, Tensor]:
        """The anchors as named tensors, for a file."""
        tensors = {"coordinates": self.coordinates, "edges": self.edges.int()}
        if self.names is not None:
            text = bytearray(json.dumps(self.names).encode())
            tensors["names"] = torch.frombuffer(text, dtype=torch.uint8)
        return tensors

    def align(self, dataset: Dataset) -> Dataset:
        """The dataset with its coordinates aligned to those of training."""
        graph = dataset.graphs[0].clone()
        own = graph.x[:, -dataset.num_positions :]
        place, reason = self._places(_ids(dataset), graph)
        if reason:
            found = (
                "the model reads coordinates of the graph it was trained on, for lack of features"
            )
            remedy = "train on this graph, or give nodes features and set feature_norm = standard"
            raise InputError(f"{dataset.name}: {found}; {reason}; {remedy}")
        known, aligned = place >= 0, self.coordinates[place]
        if not known.all():
            pair = own[known].double(), aligned[known].double()
            # Columns may be zero or depend on each other, which this driver allows.
            turn = torch.linalg.lstsq(*pair, driver="gelsd").solution
            aligned[~known] = (own[~known].double() @ turn).float()
        graph.x = torch.cat([graph.x[:, : -dataset.num_positions], aligned], dim=1)
        # They are the model's coordinates from here on, no longer the graph's own.
        return replace(dataset, graphs=[graph], num_positions=0)

    def _places(self, names: tuple[str, ...] | None, graph: Data) -> tuple[Tensor, str]:
        """The row of each node here, -1 for new ones, and the reason if it is a different graph."""
        total, count = len(self.coordinates), graph.x.size(0)
        # Without ids, removing a node renumbers all that follow it.
        fewest, place = 1.0, torch.arange(count)
        if self.names is not None and names is not None:
            index = {name: i for i, name in enumerate(self.names)}
            fewest, place = _FEWEST_SHARED, torch.tensor([index.get(name, -1) for name in names])
            shared = int((place >= 0).sum())
            if shared < fewest * count:
                return place, f"only {shared} of its {count} nodes are known from training"
        elif count != total:
            return place, f"its nodes have no ids and are {count}, not the {total} of training"
        # The nodes of another graph may happen to have the same ids.
        expected = self.edges[:, torch.isin(self.edges, place).all(0)]
        ends = place[graph.edge_index]
        keys = (ends[0] * total + ends[1])[(ends >= 0).all(0)]
        found = torch.isin(expected[0] * total + expected[1], keys).float().mean()
        wrong = f"only {found:.0%} of the edges of training between its nodes exist"
        # The mean of no edges is NaN.
        return place, wrong if found < fewest else ""


def _ids(dataset: Dataset) -> tuple[str, ...] | None:
    """The ids of the nodes, unless two nodes share one."""
    (names,) = dataset.node_names or (None,)
    return names if names and len(set(names)) == len(names) else None
