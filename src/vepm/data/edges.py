"""Edges in canonical form, with the weights and kinds that the data give them."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vepm.errors import InputError

MOST_KINDS = 63
KIND_SEPARATOR = "|"

Kinds = tuple[Tensor, tuple[str, ...]]
"""A table [M, R] that says of which kinds each edge is, and the names of the kinds."""


def canonical_edges(
    edge_index: Tensor,
    num_nodes: int,
    *,
    source: str = "data",
    one_way: bool = False,
    directed: bool = False,
) -> tuple[Tensor, list[str]]:
    """Both directions of every edge [2, E], once, and in words what was changed for that.

    The result is sorted by destination and then source. Where edges are listed ``one_way`` by
    convention, adding the other direction is not worth a message; where they are ``directed``,
    none is added.
    """
    check_range(edge_index, num_nodes, source)
    row, col = edge_index.numpy()
    proper = row != col
    keys = listed = _unique((col * num_nodes + row)[proper])
    if not directed:
        reverse = listed % num_nodes
        reverse *= num_nodes
        reverse += listed // num_nodes
        keys = _unique(np.concatenate([listed, reverse]))
    count = int(proper.sum())
    found = [
        f"{verb} {count} {what}{'' if count == 1 else 's'}"
        for verb, count, what in (
            ("removed", row.size - count, "self-loop"),
            ("merged", count - listed.size, "duplicate edge"),
            ("added", 0 if one_way else keys.size - listed.size, "missing reverse edge"),
        )
        if count
    ]
    edges = torch.empty(2, keys.size, dtype=torch.long)
    np.remainder(keys, num_nodes, out=edges[0].numpy())
    np.floor_divide(keys, num_nodes, out=edges[1].numpy())
    return edges, found


def _unique(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorted in place: for tens of millions, NumPy's own takes twice the memory and far longer."""
    keys.sort()
    return keys[np.diff(keys, prepend=-1) > 0]


def check_range(edge_index: Tensor, num_nodes: int, source: str) -> None:
    """Refuse edges to nodes that do not exist."""
    bad = ((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0).nonzero()
    if bad.numel():
        i = int(bad[0])
        row, col = edge_index[:, i].tolist()
        raise InputError(
            f"{source}: edge {i} joins {row} and {col}, but nodes run from 0 to {num_nodes - 1}; "
            "correct the index or add the node"
        )


def canonical_weights(
    edge_index: Tensor,
    listed: Tensor,
    weights: Tensor,
    where: Callable[[int], str],
    *,
    directed: bool = False,
    add: bool = False,
) -> Tensor | None:
    """The weights of canonical edges [E], given those [M] of the edges as they were listed [2, M].

    All must be positive and finite as float32; None if all are 1. Edges listed several times in one
    direction have the sum of their weights. An edge listed in both directions has that weight if it
    is the same in both; if that is not so for all of them, or with ``add``, it has the sum.
    """
    single = weights.float()
    bad = (~(single.isfinite() & (single > 0))).nonzero()
    if bad.numel():
        i = int(bad[0])
        raise InputError(
            f"{where(i)}: the weight is {float(weights[i]):g}; edge weights must be positive and "
            "finite; correct it, or ignore all of them with weights=False (--no-weights)"
        )
    if bool((weights == 1).all()):
        return None
    sums = [torch.zeros(edge_index.size(1), dtype=torch.float64) for _ in range(2)]
    for total, ends in zip(sums, (listed,) if directed else (listed, listed.flip(0)), strict=False):
        order, place = _places(edge_index, ends)
        total.index_add_(0, place, weights[order].double())
    found, back = sums
    differ = (found > 0) & (back > 0) & ~torch.isclose(found, back)
    return (found + back if add or bool(differ.any()) else torch.maximum(found, back)).float()


def canonical_kinds(
    edge_index: Tensor, listed: Tensor, kinds: Tensor, directed: bool = False
) -> Tensor:
    """The kinds of canonical edges [E, R], given those [M, R] of the edges as they were listed.

    An edge listed several times, or in both directions, is of all the kinds it was listed with.
    """
    found = torch.zeros(edge_index.size(1), kinds.size(1), dtype=torch.bool)
    for ends in (listed,) if directed else (listed, listed.flip(0)):
        order, place = _places(edge_index, ends)
        edge, kind = kinds[order].nonzero(as_tuple=True)
        found[place[edge], kind] = True
    return found


def _places(edge_index: Tensor, listed: Tensor) -> tuple[Tensor, Tensor]:
    """The listed edges that are no self-loops, and where each is among the canonical ones."""
    proper = (listed[0] != listed[1]).nonzero().flatten()
    base = int(edge_index.max()) + 1 if edge_index.numel() else 1
    row, col = listed[:, proper]
    # Sorted queries are found ten times as fast as those in random order.
    wanted, order = (col * base + row).sort()
    return proper[order], torch.searchsorted(edge_index[1] * base + edge_index[0], wanted)


def kinds_from_text(values: Sequence[str], source: str) -> Kinds:
    """Kinds written as text, several separated by ``|``."""
    split = [{kind.strip() for kind in value.split(KIND_SEPARATOR)} for value in values]
    names = tuple(sorted(set().union(*split) - {""}))
    _check_count(len(names), source)
    table = [[name in row for name in names] for row in split]
    return torch.tensor(table, dtype=torch.bool).reshape(len(values), len(names)), names


def kinds_from_numbers(
    kinds: Tensor, num_edges: int, names: Sequence[str] | None, source: str
) -> Kinds:
    """Kinds given as bit masks [M] or as a table [M, R], with or without names."""
    integers = not (kinds.is_floating_point() or kinds.is_complex())
    if not integers or kinds.dim() not in (1, 2) or kinds.size(0) != num_edges:
        raise InputError(
            f"{source}: edge_kind is {list(kinds.shape)} of {kinds.dtype}; give a bit mask per "
            f"edge ([{num_edges}]) or a column of True and False per kind"
        )
    if kinds.dim() == 1:
        kinds = kinds.long()
        if kinds.numel() and int(kinds.min()) < 0:
            raise InputError(f"{source}: edge_kind holds negative numbers; bit masks are positive")
        largest = int(kinds.max()) if kinds.numel() else 0
        count = max(largest.bit_length(), len(names or ()))
        _check_count(count, source)
        kinds = kinds[:, None] >> torch.arange(count) & 1
    _check_count(kinds.size(1), source)
    names = [f"kind {i}" for i in range(kinds.size(1))] if names is None else names
    if len(names) != kinds.size(1) or len(set(names)) != len(names):
        found = f"{len(set(names))} different kind_names for {kinds.size(1)} kinds of edges"
        raise InputError(f"{source}: {found}; give one name per kind")
    return kinds.bool(), tuple(names)


def _check_count(count: int, source: str) -> None:
    if count > MOST_KINDS:
        raise InputError(
            f"{source}: edges are of {count} kinds, at most {MOST_KINDS} can be told apart; use "
            "fewer, or another column name if these are no kinds"
        )
