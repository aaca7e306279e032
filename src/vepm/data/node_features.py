"""Node features as one table: from matrices and data frames, and as a trained model takes them."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from vepm.data.canonical import is_sparse
from vepm.data.columns import Features, ReadOptions, Table
from vepm.data.dataset import Dataset, listed_names
from vepm.data.scaling import DEGREE_FEATURES
from vepm.errors import InputError

logger = logging.getLogger("vepm")

MOST_DENSE_ENTRIES = 10_000_000  # sparse features with no more, zeros included, are made dense
MOST_COLUMNS = 2**22  # a weight matrix has a row for each column


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
