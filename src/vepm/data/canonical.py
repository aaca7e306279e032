"""Edges and node features in canonical form, whatever the data give of them."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from vepm.data.columns import Features, ReadOptions, Table
from vepm.data.dataset import Dataset, listed_names
from vepm.data.scaling import DEGREE_FEATURES
from vepm.errors import InputError

MOST_KINDS = 63
KIND_SEPARATOR = "|"
logger = logging.getLogger("vepm")

MOST_DENSE_ENTRIES = 10_000_000  # sparse features with no more, zeros included, are made dense
MOST_COLUMNS = 2**22  # a weight matrix has a row for each column


def canonical_edges(
    edge_index: Tensor, num_nodes: int, *, source: str = "data", directed: bool = False
) -> tuple[Tensor, list[str]]:
    """Every edge in both directions, unless ``directed``, once [2, E], and in words what changed.

    The result is sorted by destination and then source.
    """
    for i in ((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0).nonzero().flatten()[:1]:
        ends = " and ".join(map(str, edge_index[:, i].tolist()))
        nodes = f"nodes run from 0 to {num_nodes - 1}; correct the index or add the node"
        raise InputError(f"{source}: edge {int(i)} joins {ends}, but {nodes}")
    row, col = edge_index.numpy()
    proper = row != col
    keys = listed = _unique((col * num_nodes + row)[proper])
    if not directed:
        reverse = listed % num_nodes * num_nodes + listed // num_nodes
        keys = _unique(np.concatenate([listed, reverse]))
    counts = {
        "removed {} self-loop": int((~proper).sum()),
        "merged {} duplicate edge": int(proper.sum()) - listed.size,
        "added {} missing reverse edge": keys.size - listed.size,
    }
    changes = [text.format(n) + "s" * (n > 1) for text, n in counts.items() if n]
    edges = torch.empty(2, keys.size, dtype=torch.long)
    np.floor_divide(keys, num_nodes, out=edges[1].numpy())
    np.remainder(keys, num_nodes, out=edges[0].numpy())
    return edges, changes


def _unique(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorted in place: for tens of millions, NumPy's own takes twice the memory and far longer."""
    keys.sort()
    return keys[np.diff(keys, prepend=-1) > 0]


def canonical_weights(
    edge_index: Tensor, listed: Tensor, weights: Tensor, directed: bool, add: bool
) -> Tensor | None:
    """The weights of canonical edges [E] from those of the listed edges [M]; None if all are 1.

    Weights of an edge that is listed several times in one direction are added up, and those of both
    directions with ``add``, or if they differ for any edge.
    """
    if bool((weights == 1).all()):
        return None
    found, back = _totals(edge_index, listed, weights.double(), directed)
    differ = (found > 0) & (back > 0) & ~torch.isclose(found, back)
    return (found + back if add or bool(differ.any()) else torch.maximum(found, back)).float()


def canonical_kinds(
    edge_index: Tensor, listed: Tensor, kinds: Tensor, directed: bool = False
) -> Tensor:
    """The kinds of canonical edges [E, R]: all [M, R] that an edge was listed with, either way."""
    return _totals(edge_index, listed, kinds.float(), directed).sum(0) > 0


def _totals(edge_index: Tensor, listed: Tensor, values: Tensor, directed: bool) -> Tensor:
    """Values of listed edges added up at the canonical ones, and at their reverse [2, E, ...]."""
    base = int(edge_index.max()) + 1 if edge_index.numel() else 1
    keys, proper = edge_index[1] * base + edge_index[0], listed[0] != listed[1]
    row, col = listed[:, proper]
    totals = values.new_zeros(2, keys.numel(), *values.shape[1:])
    wanted = (col * base + row, row * base + col)
    for total, places in zip(totals, wanted[:1] if directed else wanted, strict=False):
        # Sorted queries are found ten times as fast as those in random order.
        places, order = places.sort()
        total.index_add_(0, torch.searchsorted(keys, places), values[proper][order])
    return totals


def kind_table(
    kinds: Tensor | Sequence[str], names: Sequence[str] | None, source: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Kinds of edges as a table [M, R], given so, as bit masks or as text with ``|``, and names."""
    if not isinstance(kinds, Tensor):
        split = [{kind.strip() for kind in text.split(KIND_SEPARATOR)} for text in kinds]
        # One too many is refused below.
        names = sorted(set().union(*split) - {""})[: MOST_KINDS + 1]
        table = [[name in row for name in names] for row in split]
        kinds = torch.tensor(table, dtype=torch.bool).view(len(split), len(names))
    wrong = kinds.is_floating_point() or (kinds.dim() == 1 and bool((kinds < 0).any()))
    if kinds.dim() == 1 and not wrong:
        largest = int(kinds.max()) if kinds.numel() else 0
        kinds = (
            kinds.long()[:, None] >> torch.arange(max(largest.bit_length(), len(names or ()))) & 1
        )
    count = kinds.shape[-1]
    names = [f"kind {i}" for i in range(count)] if names is None else names
    if wrong or count > MOST_KINDS or not len(names) == len(set(names)) == count:
        found = (
            f"edge_kind is {list(kinds.shape)} {kinds.dtype} with {len(set(names))} different names"
        )
        needed = (
            f"a bit mask or a row of True and False per edge, for at most {MOST_KINDS} named kinds"
        )
        raise InputError(f"{source}: {found}; give {needed}")
    return kinds.bool(), tuple(names)


def is_sparse(x: Any) -> bool:
    """Whether features are kept as their non-zero entries."""
    return isinstance(x, Tensor) and x.layout != torch.strided


def feature_table(x: Any, num_nodes: int, source: str) -> Tensor:
    """A tensor, array or SciPy matrix as float32 [num_nodes, F], sparse only if it is too large."""
    if not isinstance(x, Tensor):
        sparse: bool = sp.issparse(x)
        coo: Any = sp.coo_array(x) if sparse else None
        array = coo.data if sparse else np.asarray(x)
        try:
            if array.dtype.kind not in "biufO":
                raise TypeError
            x = torch.from_numpy(array.astype(np.float64))
        except (TypeError, ValueError, OverflowError):
            wrong = f"{source}: features are not all numbers; give an array [N, F]"
            raise InputError(wrong) from None
        if sparse:
            where = torch.from_numpy(np.stack(coo.coords).astype(np.int64))
            x = torch.sparse_coo_tensor(where, x, coo.shape, check_invariants=True)
    if x.dim() != 2 or len(x) != num_nodes or not 0 < x.size(1) <= MOST_COLUMNS or x.is_complex():
        needed = f"{num_nodes} rows of 1 to {MOST_COLUMNS} real numbers, one row per node"
        raise InputError(f"{source}: features have shape {list(x.shape)}; give {needed}, or none")
    x, kept = x.detach().cpu(), is_sparse(x) and x.numel() > MOST_DENSE_ENTRIES
    x = (x.to_sparse_coo().coalesce() if kept else x.to_dense().contiguous()).float()
    values = x.values() if kept else x
    for place in (~torch.isfinite(values)).nonzero()[:1]:
        row, column = (x.indices()[:, place[0]] if kept else place).tolist()
        found = f"feature of node {row}, column {column} is {float(values[tuple(place)])}"
        raise InputError(f"{source}: {found} (as float32); give a finite number")
    return x


def features_of(x: Any, num_nodes: int, options: ReadOptions, source: str) -> Features:
    """Features from an array, or from a data frame of any library, whose columns have names."""
    names = list(getattr(x, "columns", ()))
    if not any(isinstance(name, str) for name in names):
        options.chosen({}, source)
        return None if x is None else feature_table(x, num_nodes, source), None, []
    cells, distinct = np.asarray(x), {name for name in names if isinstance(name, str)}
    if len(distinct) < len(names) or len(cells) != num_nodes:
        found = f"features have {len(cells)} rows and columns {names}"
        needed = f"{num_nodes} rows, one per node, and columns with names of text, each its own"
        raise InputError(f"{source}: {found[:200]}; give {needed}")
    columns = dict(zip(names, cells.T.tolist(), strict=True))
    table = Table(source, columns, range(num_nodes), ("node", "column"))
    return table.features(options, constants=True)


def with_columns(dataset: Dataset, names: tuple[str, ...] | None, width: int) -> Dataset:
    """The dataset with the columns that a model was trained on: by name if both have names."""
    given, count = dataset.feature_names, dataset.num_features
    if names is None or given is None:
        if count != width:
            found = f"has {count} features, the model was trained on {width}"
            raise InputError(f"{dataset.name}: {found}; give the same columns in the same order")
        if names != given:
            nameless = "the model has" if names is None else "the data have"
            how = "columns are matched by position; make sure they are in the order of training"
            logger.warning("%s: %s no column names, so %s", dataset.name, nameless, how)
        return replace(dataset, feature_names=names)
    if names == given:
        return dataset
    place, wanted = {name: i for i, name in enumerate(given)}, set(names)
    missing = [name for name in names if name not in place]
    unknown = [name for name in given if name not in wanted]
    if missing or unknown:
        remedy = "give the same columns, in any order"
        if set(DEGREE_FEATURES) <= set(missing):
            remedy = "give none, because the model was trained without features"
        found = f"missing: {listed_names(missing)}; unknown to the model: {listed_names(unknown)}"
        raise InputError(
            f"{dataset.name}: other feature columns than in training ({found}); {remedy}"
        )
    order = torch.tensor([place[name] for name in names])
    graphs = [graph.clone() for graph in dataset.graphs]
    for graph in graphs:
        found = graph.x.index_select(1, order)
        graph.x = found.coalesce() if is_sparse(found) else found
    return replace(dataset, graphs=graphs, feature_names=names)
