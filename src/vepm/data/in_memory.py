"""Graphs in memory: PyG graphs, and (X, A, y) as arrays, sparse matrices or data frames."""

from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.build import FEW_NODES, MOST_GAPS, Parts, ReadOptions, refuse_choice
from vepm.data.columns import Features, encode_columns
from vepm.data.edges import check_range, decode_kinds
from vepm.data.features import feature_table, from_scipy, refuse_sparse, shape_of
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, UNLABELLED

_EDGE_KEYS = ("edge_index", "edge_kind", "edge_weight")


def data_parts(graphs: list[Data], name: str, *, single: bool, source: str | None = None) -> Parts:
    """The disjoint union of PyG graphs, each checked before its indices are shifted."""
    source = name if source is None else source
    if len({graph.x is not None for graph in graphs}) > 1:
        raise InputError(f"{name}: some graphs have features x and some not; give all or none")
    places = [source] if single else [f"{source}, graph {i}" for i in range(len(graphs))]
    checked = [_checked(graph, at, single) for graph, at in zip(graphs, places, strict=True)]
    counts = torch.tensor([graph.num_nodes for graph in checked])
    first = (counts.cumsum(0) - counts).tolist()
    edges = [graph.edge_index + shift for graph, shift in zip(checked, first, strict=True)]
    tables = [graph.x for graph in checked if graph.x is not None]
    for at, x in zip(places, tables, strict=False):
        if x.size(1) != tables[0].size(1):
            found = f"{x.size(1)} features where graph 0 has {tables[0].size(1)}"
            raise InputError(f"{at}: {found}; give all graphs the same features")
    weights = _of_edges(graphs, checked, "edge_weight", source)
    if weights is not None and (weights.numel() != len(weights) or weights.is_complex()):
        found = f"edge_weight is {list(weights.shape)} of {weights.dtype}"
        raise InputError(f"{source}: {found}; give one number per edge ([E])")
    kinds = _of_edges(graphs, checked, "edge_kind", source)
    named = graphs[0].get("kind_names")
    keys = dict.fromkeys(key for graph in graphs for key in graph.to_dict() if key[:5] == "edge_")
    return Parts(
        name=name,
        source=source,
        edges=torch.cat(edges, dim=1),
        num_nodes=int(counts.sum()),
        x=(tables[0] if single else torch.cat(tables)) if tables else None,
        labels=torch.cat([graph.y for graph in checked]),
        masks={mask: graphs[0].get(mask) for mask in MASK_NAMES} if single else {},
        batch=None if single else torch.arange(len(graphs)).repeat_interleave(counts),
        num_graphs=len(graphs),
        weights=None if weights is None else weights.reshape(-1).double(),
        kinds=None if kinds is None else decode_kinds(kinds, len(kinds), named, source),
        unused=[f"'{key}'" for key in keys if key not in _EDGE_KEYS],
    )


def _checked(data: Data, source: str, single: bool) -> Data:
    """What a graph holds, with types and shapes checked."""
    num_nodes, edges, y = count_nodes(data, source), data.edge_index, data.y
    if edges is None:
        raise InputError(f"{source}: edge_index is missing; give a [2, E] tensor (E may be 0)")
    if not isinstance(edges, Tensor) or edges.dim() != 2 or edges.size(0) != 2:
        raise InputError(f"{source}: edge_index is {shape_of(edges)}; a [2, E] tensor is needed")
    if edges.is_floating_point() and edges.numel():
        raise InputError(f"{source}: edge_index holds {edges.dtype}; integers are needed")
    edges = edges.detach().cpu().long()
    check_range(edges, num_nodes, source)
    x = None if data.x is None else feature_table(data.x, num_nodes, source)
    if not single:
        refuse_sparse(x, source)
    labelled, count = ("node", num_nodes) if single else ("graph", 1)
    y = torch.full((count,), UNLABELLED) if y is None else y
    if not isinstance(y, Tensor) or not y.numel() == count == max(y.shape or (1,)):
        raise InputError(
            f"{source}: y is {shape_of(y)} for {num_nodes} nodes; one label per {labelled} "
            f"([{count}]) is needed"
        )
    return Data(x=x, edge_index=edges, y=y.detach().cpu().reshape(-1), num_nodes=num_nodes)


def count_nodes(data: Data, source: str) -> int:
    """Number of nodes, from what the graph says outright before what its edges imply."""
    if isinstance(data.x, Tensor) and data.x.dim() > 0:
        count = int(data.x.size(0))
    elif "num_nodes" in data:
        count = int(data["num_nodes"])
    elif isinstance(data.y, Tensor) and data.y.numel() > 1:
        count = int(data.y.numel())
    elif isinstance(data.edge_index, Tensor) and data.edge_index.numel():
        count = max(int(data.edge_index.max()) + 1, 1)
        if count > max(FEW_NODES, MOST_GAPS * data.edge_index.numel()):
            raise InputError(
                f"{source}: edges name node {count - 1} but few others; number the nodes from 0, "
                "or say num_nodes"
            )
    else:
        count = 0
    if count == 0:
        raise InputError(f"{source}: the graph has no nodes; every graph needs at least one")
    return count


def _of_edges(graphs: list[Data], checked: list[Data], key: str, source: str) -> Tensor | None:
    """An attribute of the edges of all graphs; None if no graph has it."""
    given = [graph.get(key) for graph in graphs]
    if all(values is None for values in given):
        return None
    for values, found in zip(given, checked, strict=True):
        like_first = isinstance(values, Tensor) and values.shape[1:] == given[0].shape[1:]
        if not like_first or values.shape[:1] != (found.num_edges,) or values.dim() > 2:
            raise InputError(
                f"{source}: {key} does not fit edge_index; give every graph one entry per edge"
            )
    return torch.cat([values.detach().cpu() for values in given])


def matrix_parts(
    x: Any,
    adjacency: Any,
    y: Any = None,
    *,
    name: str,
    source: str,
    options: ReadOptions,
    kinds: tuple[Tensor, tuple[str, ...]] | None = None,
    **more: Any,
) -> Parts:
    """A node task from features [N, F], an adjacency matrix [N, N] and labels [N].

    Entries of the matrix that are not zero are edges, and their weights. ``kinds`` are those of
    the stored entries of a sparse matrix; ``more`` are other fields of :class:`Parts`.
    """
    coo = _entries(adjacency, source)
    present = coo.data != 0
    num_nodes = int(coo.shape[0])
    ends = np.stack([coo.row[present], coo.col[present]]).astype(np.int64)
    table, names, unused = _features(x, num_nodes, source, options)
    if kinds is not None:
        kinds = (kinds[0][torch.from_numpy(present)], kinds[1])
    return Parts(
        name=name,
        source=source,
        edges=torch.from_numpy(ends),
        num_nodes=num_nodes,
        x=table,
        feature_names=names,
        labels=y,
        weights=torch.from_numpy(coo.data[present].astype(np.float64)),
        weight_at=lambda i: f"{source}, entry {ends[:, i].tolist()} of the adjacency matrix",
        kinds=kinds,
        unused=[*unused, *more.pop("unused", ())],
        **more,
    )


def _entries(adjacency: Any, source: str) -> Any:
    """The stored entries of a square matrix."""
    matrix: Any = adjacency if sp.issparse(adjacency) else np.asarray(adjacency)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"{source}: the adjacency matrix is {list(matrix.shape)}; it must be square, "
            "one row and column per node"
        )
    if matrix.shape[0] == 0:
        raise InputError(f"{source}: the adjacency matrix has no nodes; give at least one")
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"{source}: the adjacency matrix holds {matrix.dtype}; numbers are needed")
    coo = sp.coo_array(matrix)
    if not np.isfinite(coo.data).all():
        raise InputError(f"{source}: the adjacency matrix holds NaN or infinity; 0 means no edge")
    return coo


def _features(x: Any, num_nodes: int, source: str, options: ReadOptions) -> Features:
    if x is None:
        refuse_choice(source, options)
        return None, None, []
    if hasattr(x, "columns") and any(isinstance(name, str) for name in x.columns):
        return _from_frame(x, num_nodes, source, options)
    refuse_choice(source, options)
    return feature_table(_tensor(x, source), num_nodes, source), None, []


def _from_frame(x: Any, num_nodes: int, source: str, options: ReadOptions) -> Features:
    """Features from a data frame of any library; its constant columns are kept."""
    names = list(x.columns)
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{source}: some column names are text and some are not; rename them")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise InputError(f"{source}: there are {count} feature columns '{name}'; rename them")
    cells = np.asarray(x)
    if cells.shape != (num_nodes, len(names)):
        raise InputError(
            f"{source}: features have shape {list(cells.shape)}; {num_nodes} rows, one per node, "
            "are needed"
        )
    return encode_columns(
        dict(zip(names, cells.T.tolist(), strict=True)),
        lambda i, name: f"{source}: feature of node {i}, column {name}",
        options,
        source,
        constants=True,
    )


def _tensor(x: Any, source: str) -> Tensor:
    if isinstance(x, Tensor):
        return x
    sparse: bool = sp.issparse(x)
    if sparse and x.dtype.kind in "biuf" and x.ndim == 2:
        return from_scipy(x)
    array: NDArray[Any] = x.toarray() if sparse else np.asarray(x)
    if array.dtype.kind not in "biufO":
        raise InputError(f"{source}: features hold {array.dtype}; numbers are needed")
    try:
        return torch.from_numpy(array.astype(np.float64))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{source}: features are not all numbers; give an array [N, F]") from None
