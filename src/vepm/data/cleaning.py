"""Any PyG graph in, the canonical graph out."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data

from vepm.data.labels import as_integers
from vepm.data.masks import clean_masks
from vepm.data.sparse import MOST_COLUMNS, is_sparse, kept_sparse
from vepm.errors import InputError
from vepm.tasks import UNLABELLED

logger = logging.getLogger("vepm")

FEW_NODES = 2**20
MOST_GAPS = 64
"""Numbers left out for each that edges name: beyond this they are ids and not numbers."""
DEGREE_FEATURES = ("one", "log_degree")


def clean(
    data: Data, *, strict: bool = False, source: str = "data", messages: list[str] | None = None
) -> Data:
    """The canonical form of a graph (see :class:`Dataset`), as a new object.

    Edges are made undirected, duplicates merged and self-loops removed. A graph without features
    gets two, a constant and log(1 + degree). Masks are cut down to labelled nodes. Attributes a
    model has no use for (edge attributes, positions) are left behind.

    Args:
        data: the graph; not changed.
        strict: raise instead of mending edges.
        source: what to call the graph in messages.
        messages: a list to which what was mended is added, in words; it is logged in any case.

    Raises:
        InputError: on wrong shapes, indices out of range, NaN or infinite features, labels that
            are not integers, and, if strict, on edges that need mending.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from vepm.data import clean
        >>> clean(Data(edge_index=torch.tensor([[0, 0, 1], [0, 1, 2]]))).edge_index.tolist()
        [[1, 0, 2, 1], [0, 1, 1, 2]]
    """
    num_nodes = count_nodes(data, source)
    edges = _edge_index(data, source)
    edge_index, found = canonical_edges(edges, num_nodes, source=source)
    report(found, source, strict=strict, messages=messages)
    x = data.x if data.x is not None else degree_features(edge_index, num_nodes)
    result = Data(x=check_features(x, num_nodes, source), edge_index=edge_index)
    result.y = _labels(data, num_nodes, source)
    clean_masks(data, result, source)
    return result


def canonical_edges(
    edge_index: Tensor, num_nodes: int, *, source: str = "data", one_way: bool = False
) -> tuple[Tensor, list[str]]:
    """Both directions of every edge, once, sorted by destination and then source.

    Args:
        edge_index: edges [2, M] in any order, with self-loops and duplicates.
        num_nodes: number of nodes the indices must stay below.
        source: what to call the edges in messages.
        one_way: whether listing an edge in one direction only is how it should be.

    Returns:
        The canonical edges [2, E], and in words what had to be mended.
    """
    _check_range(edge_index, num_nodes, source)
    row, col = edge_index
    proper = row != col
    loops = int(row.numel() - proper.sum())
    row, col = row[proper], col[proper]
    listed = torch.unique(col * num_nodes + row)
    keys = torch.unique(torch.cat([listed, (listed % num_nodes) * num_nodes + listed // num_nodes]))
    found = [
        f"{verb} {count} {what}{'' if count == 1 else 's'}"
        for verb, count, what in (
            ("removed", loops, "self-loop"),
            ("merged", row.numel() - listed.numel(), "duplicate edge"),
            ("added", 0 if one_way else keys.numel() - listed.numel(), "missing reverse edge"),
        )
        if count
    ]
    return torch.stack([keys % num_nodes, keys // num_nodes]), found


def report(
    found: Sequence[str], source: str, *, strict: bool = False, messages: list[str] | None = None
) -> None:
    """Log what was mended, or refuse it if strict."""
    if not found:
        return
    line = f"{source}: {', '.join(found)}"
    if strict:
        raise InputError(
            f"{line}; mend the edges, or read them with strict=False (without --strict)"
        )
    logger.info(line)
    if messages is not None:
        messages.append(line)


def degree_features(edge_index: Tensor, num_nodes: int) -> Tensor:
    """A constant and log(1 + degree) [num_nodes, 2]: all that bare edges say without identities."""
    degree = torch.bincount(edge_index[1], minlength=num_nodes).float()
    return torch.stack([torch.ones(num_nodes), degree.log1p()], dim=1)


def check_features(
    x: object, num_nodes: int, source: str, names: Sequence[str] | None = None
) -> Tensor:
    """Features as float32 [num_nodes, F], refusing wrong shapes and non-finite values."""
    if not isinstance(x, Tensor):
        raise InputError(f"{source}: features are {type(x).__name__}; give a tensor [nodes, F]")
    x = kept_sparse(x) if is_sparse(x) else x
    if x.dim() != 2 or x.size(0) != num_nodes or x.is_complex():
        raise InputError(
            f"{source}: features have shape {list(x.shape)}; {num_nodes} rows of real numbers, "
            "one per node, are needed"
        )
    if x.size(1) == 0:
        raise InputError(f"{source}: features have no columns; leave them out to use degrees")
    if x.size(1) > MOST_COLUMNS:
        raise InputError(
            f"{source}: {x.size(1)} feature columns; at most {MOST_COLUMNS} can be learned from"
        )
    x = x.detach().cpu().float()
    bad = _not_finite(x)
    if bad is not None:
        (row, column), value = bad
        name = names[column] if names else column
        raise InputError(
            f"{source}: feature of node {row}, column {name} is {value} (as float32); give a "
            "finite number"
        )
    return x if is_sparse(x) else x.contiguous()


def _not_finite(x: Tensor) -> tuple[list[int], float] | None:
    """The first entry that is no finite number, and where it stands."""
    values = x.values() if is_sparse(x) else x
    bad = (~torch.isfinite(values)).nonzero()
    if not bad.numel():
        return None
    place = x.indices()[:, bad[0, 0]] if is_sparse(x) else bad[0]
    return place.tolist(), float(values[tuple(bad[0])])


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


def _edge_index(data: Data, source: str) -> Tensor:
    edges = data.edge_index
    if edges is None:
        raise InputError(f"{source}: edge_index is missing; give a [2, E] tensor (E may be 0)")
    if not isinstance(edges, Tensor) or edges.dim() != 2 or edges.size(0) != 2:
        shape = list(edges.shape) if isinstance(edges, Tensor) else type(edges).__name__
        raise InputError(f"{source}: edge_index is {shape}; a [2, E] tensor is needed")
    if edges.is_floating_point() and edges.numel():
        raise InputError(f"{source}: edge_index holds {edges.dtype}; integers are needed")
    return edges.detach().cpu().long()


def _check_range(edge_index: Tensor, num_nodes: int, source: str) -> None:
    bad = ((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0).nonzero()
    if bad.numel():
        i = int(bad[0])
        row, col = edge_index[:, i].tolist()
        raise InputError(
            f"{source}: edge {i} joins {row} and {col}, but nodes run from 0 to {num_nodes - 1}; "
            "mend the index or add the node"
        )


def _labels(data: Data, num_nodes: int, source: str) -> Tensor:
    y = data.y
    if y is None:
        return torch.full((num_nodes,), UNLABELLED)
    if (
        not isinstance(y, Tensor)
        or y.numel() not in (1, num_nodes)
        or y.numel() != max(y.shape or (1,))
    ):
        shape = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(
            f"{source}: y is {shape}; one integer per node ([{num_nodes}]) or per graph ([1]) "
            "is needed"
        )
    return as_integers(y.detach().cpu().reshape(-1), source)
