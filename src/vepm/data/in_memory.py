"""Graphs in memory: PyG graphs, and (X, A, y) as arrays, sparse matrices or data frames."""

from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Batch, Data

from vepm.data.build import FEW_NODES, MOST_GAPS, Parts, ReadOptions, refuse_choice
from vepm.data.columns import Features, encode_columns
from vepm.data.edges import Kinds, check_range, kinds_from_numbers
from vepm.data.features import feature_table, is_sparse, shape_of
from vepm.errors import InputError
from vepm.tasks import MASK_NAMES, UNLABELLED

_EDGE_KEYS = ("edge_weight", "edge_kind")


def data_parts(graphs: list[Data], name: str, *, single: bool, source: str | None = None) -> Parts:
    """The disjoint union of PyG graphs, each checked before its indices are shifted."""
    source = name if source is None else source
    places = [source] if single else [f"{source}, graph {i}" for i in range(len(graphs))]
    checked = [_checked(graph, at, single) for graph, at in zip(graphs, places, strict=True)]
    keys = ("x", *_EDGE_KEYS)
    widths = [{key: list(g[key].shape[1:]) for key in keys if key in g} for g in checked]
    for at, width in zip(places, widths, strict=True):
        if width != widths[0]:
            found = f"holds {_shown(width)} where graph 0 holds {_shown(widths[0])}"
            raise InputError(f"{at}: {found}; give all graphs the same")
    union = checked[0] if single else Batch.from_data_list(checked)
    weights, kinds = (union.get(key) for key in _EDGE_KEYS)
    if weights is not None and (weights.numel() != len(weights) or weights.is_complex()):
        found = f"edge_weight is {list(weights.shape)} of {weights.dtype}"
        raise InputError(f"{source}: {found}; give one number per edge ([E])")
    named = graphs[0].get("kind_names")
    every = dict.fromkeys(key for graph in graphs for key in graph.to_dict() if key[:5] == "edge_")
    return Parts(
        name=name,
        source=source,
        edges=union.edge_index,
        num_nodes=union.num_nodes,
        x=union.get("x"),
        labels=union.y,
        masks={mask: graphs[0].get(mask) for mask in MASK_NAMES} if single else {},
        batch=None if single else union.batch,
        weights=None if weights is None else weights.reshape(-1).double(),
        kinds=None if kinds is None else kinds_from_numbers(kinds, len(kinds), named, source),
        unused=[f"'{key}'" for key in every if key not in ("edge_index", *_EDGE_KEYS)],
    )


def _shown(widths: dict[str, list[int]]) -> str:
    return ", ".join(f"{key} of width {(*width, 1)[0]}" for key, width in widths.items()) or "none"


def _checked(data: Data, source: str, single: bool) -> Data:
    """What a graph holds, with types and shapes checked."""
    num_nodes, edges = count_nodes(data, source), data.edge_index
    if not isinstance(edges, Tensor) or edges.dim() != 2 or edges.size(0) != 2:
        raise InputError(f"{source}: edge_index is {shape_of(edges)}; a [2, E] tensor is needed")
    if edges.is_floating_point() and edges.numel():
        raise InputError(f"{source}: edge_index holds {edges.dtype}; integers are needed")
    edges = edges.detach().cpu().long()
    check_range(edges, num_nodes, source)
    found = Data(edge_index=edges, num_nodes=num_nodes)
    if data.x is not None:
        found.x = feature_table(data.x, num_nodes, source)
        if is_sparse(found.x) and not single:
            raise InputError(
                f"{source}: {list(found.x.shape)} sparse features are too many for a full table, "
                "which sets of graphs need; take fewer columns, such as leading singular vectors"
            )
    for key in _EDGE_KEYS:
        values = data.get(key)
        if values is None:
            continue
        if not isinstance(values, Tensor) or values.dim() > 2 or len(values) != edges.size(1):
            raise InputError(f"{source}: {key} does not fit edge_index; give one entry per edge")
        found[key] = values.detach().cpu()
    labelled, count = ("node", num_nodes) if single else ("graph", 1)
    y = torch.full((count,), UNLABELLED) if data.y is None else data.y
    if not isinstance(y, Tensor) or not y.numel() == count == max(y.shape or (1,)):
        raise InputError(
            f"{source}: y is {shape_of(y)} for {num_nodes} nodes; one label per {labelled} "
            f"([{count}]) is needed"
        )
    found.y = y.detach().cpu().reshape(-1)
    return found


def count_nodes(data: Data, source: str) -> int:
    """Number of nodes, from what the graph says outright before what its edges imply."""
    count, edges = 0, data.edge_index
    if isinstance(data.x, Tensor) and data.x.dim() > 0:
        count = data.x.size(0)
    elif "num_nodes" in data:
        count = int(data["num_nodes"])
    elif isinstance(data.y, Tensor) and data.y.numel() > 1:
        count = data.y.numel()
    elif isinstance(edges, Tensor) and edges.numel():
        count = max(int(edges.max()) + 1, 1)
        if count > max(FEW_NODES, MOST_GAPS * edges.numel()):
            raise InputError(
                f"{source}: edges name node {count - 1} but few others; number the nodes from 0, "
                "or say num_nodes"
            )
    if count == 0:
        raise InputError(f"{source}: the graph has no nodes; every graph needs at least one")
    return count


def matrix_parts(
    x: Any,
    adjacency: Any,
    y: Any = None,
    *,
    name: str,
    source: str,
    options: ReadOptions,
    kinds: Kinds | None = None,
    **more: Any,
) -> Parts:
    """A node task from features [N, F], an adjacency matrix [N, N] and labels [N].

    Entries of the matrix that are not zero are edges, and their weights. ``kinds`` are those of
    the stored entries of a sparse matrix; ``more`` are other fields of :class:`Parts`.
    """
    coo = _entries(adjacency, source)
    present = coo.data != 0
    ends = np.stack([coo.row[present], coo.col[present]]).astype(np.int64)
    table, names, unused = _features(x, coo.shape[0], source, options)
    return Parts(
        name=name,
        source=source,
        edges=torch.from_numpy(ends),
        num_nodes=coo.shape[0],
        x=table,
        feature_names=names,
        labels=y,
        weights=torch.from_numpy(coo.data[present].astype(np.float64)),
        weight_at=lambda i: f"{source}, entry {ends[:, i].tolist()} of the adjacency matrix",
        kinds=None if kinds is None else (kinds[0][torch.from_numpy(present)], kinds[1]),
        unused=[*unused, *more.pop("unused", ())],
        **more,
    )


def _entries(adjacency: Any, source: str) -> Any:
    """The stored entries of a square matrix."""
    sparse: bool = sp.issparse(adjacency)
    matrix: Any = adjacency if sparse else np.asarray(adjacency)
    wrong = None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        wrong = f"is {list(matrix.shape)}; it must be square, one row and column per node"
    elif matrix.shape[0] == 0:
        wrong = "has no nodes; give at least one"
    elif matrix.dtype.kind not in "biuf":
        wrong = f"holds {matrix.dtype}; numbers are needed"
    elif not np.isfinite(matrix.data if sparse else matrix).all():
        wrong = "holds NaN or infinity; 0 means no edge"
    if wrong:
        raise InputError(f"{source}: the adjacency matrix {wrong}")
    return sp.coo_array(matrix)


def _features(x: Any, num_nodes: int, source: str, options: ReadOptions) -> Features:
    if hasattr(x, "columns") and any(isinstance(name, str) for name in x.columns):
        return _from_frame(x, num_nodes, source, options)
    refuse_choice(source, options)
    return None if x is None else feature_table(_tensor(x, source), num_nodes, source), None, []


def _from_frame(x: Any, num_nodes: int, source: str, options: ReadOptions) -> Features:
    """Features from a data frame of any library; its constant columns are kept."""
    names, cells, wrong = list(x.columns), np.asarray(x), None
    name, count = Counter(names).most_common(1)[0]
    if not all(isinstance(name, str) for name in names):
        wrong = "some column names are text and some are not; rename them"
    elif count > 1:
        wrong = f"there are {count} feature columns '{name}'; rename them"
    elif len(cells) != num_nodes:
        wrong = f"features have {len(cells)} rows; {num_nodes} are needed, one per node"
    if wrong:
        raise InputError(f"{source}: {wrong}")
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
        coo = x.tocoo()
        where = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
        values = torch.from_numpy(coo.data.astype(np.float64))
        return torch.sparse_coo_tensor(where, values, coo.shape, check_invariants=True)
    array: NDArray[Any] = x.toarray() if sparse else np.asarray(x)
    if array.dtype.kind not in "biufO":
        raise InputError(f"{source}: features hold {array.dtype}; numbers are needed")
    try:
        return torch.from_numpy(array.astype(np.float64))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{source}: features are not all numbers; give an array [N, F]") from None
